// @ts-check
// The theme toggle switches from the system's theme to the other one and back. The choice is remembered only in this browser.
const dark = matchMedia("(prefers-color-scheme: dark)");

export const currentTheme = () => document.documentElement.dataset.theme || (dark.matches ? "dark" : "light");

export function toggleTheme() {
  const next = currentTheme() === "dark" ? "light" : "dark";
  const isSystem = next === (dark.matches ? "dark" : "light");
  if (isSystem) delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  try {
    if (isSystem) localStorage.removeItem("theme");
    else localStorage.setItem("theme", next);
  } catch {
    // Storage is blocked, so the choice is not remembered.
  }
  // A canvas doesn't follow CSS variables automatically.
  document.dispatchEvent(new CustomEvent("themechange", { detail: next }));
}
