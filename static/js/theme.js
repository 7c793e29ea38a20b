// @ts-check
// Runs before the first paint (as a classic script in <head>), so that a stored theme is applied without a flash.
(() => {
  const root = document.documentElement;
  root.classList.add("js");
  try {
    const theme = localStorage.getItem("theme");
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
  } catch {
    // Storage can be blocked, in which case the system's preference applies.
  }
})();
