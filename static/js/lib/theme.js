// The theme toggle: system -> the other one -> back. Remembered on this machine only.
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
    // Not remembered, then.
  }
  // Canvases cannot follow CSS variables by themselves.
  document.dispatchEvent(new CustomEvent("themechange", { detail: next }));
}
