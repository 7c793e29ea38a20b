// Tells screen readers what changed without moving focus. One polite region for the page, in base.html.
export function say(text) {
  const region = document.getElementById("live-region");
  if (!region) return;
  region.textContent = "";
  requestAnimationFrame(() => (region.textContent = text));
}
