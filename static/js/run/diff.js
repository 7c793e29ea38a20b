// Unfolds the unchanged parts of a diff, wherever a diff is shown.
export function wireDiffs(root) {
  root.addEventListener("click", (event) => {
    const all = event.target.closest("[data-unfold-all]");
    if (all) {
      for (const fold of all.closest(".diff").querySelectorAll("[data-unfold]")) open(fold);
      all.hidden = true;
      return;
    }
    const button = event.target.closest("[data-unfold]");
    if (button) open(button);
  });
}

function open(button) {
  const gap = button.closest("tbody");
  const lines = gap.nextElementSibling;
  lines.hidden = false;
  gap.hidden = true;
}
