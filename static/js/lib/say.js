// @ts-check
// Announces changes to screen readers without moving the focus, through the page's single polite live region (base.html).
export function say(text) {
  const region = document.getElementById("live-region");
  if (!region) return;
  region.textContent = "";
  requestAnimationFrame(() => (region.textContent = text));
}
