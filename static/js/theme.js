// Runs before the first paint (a classic script in <head>), so that a remembered theme does not flash.
(() => {
  const root = document.documentElement;
  root.classList.add("js");
  try {
    const theme = localStorage.getItem("theme");
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
  } catch {
    // Storage can be forbidden; then the system's preference holds.
  }
})();
