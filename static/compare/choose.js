// @ts-check
// The page for choosing runs to compare: counts the chosen runs and limits them to the number that fits.
const form = /** @type {HTMLFormElement | null} */ (document.querySelector("form[data-most]"));
if (form) {
  const most = Number(form.dataset.most);
  const boxes = [.../** @type {NodeListOf<HTMLInputElement>} */ (form.querySelectorAll("input[type=checkbox]"))];
  const count = form.querySelector("[data-count]");
  const go = /** @type {HTMLButtonElement} */ (form.querySelector("[data-go]"));
  const show = () => {
    const chosen = boxes.filter((box) => box.checked).length;
    go.disabled = chosen < 2;
    count.textContent = chosen < 2 ? `${chosen} chosen; choose at least two` : `${chosen} of at most ${most} chosen`;
    for (const box of boxes) box.disabled = !box.checked && chosen >= most;
  };
  form.addEventListener("change", show);
  window.addEventListener("pageshow", show);
  show();
}
