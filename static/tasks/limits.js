// @ts-check
// Shows the budget in words next to the estimate.
const UNITS = { candidates: "candidates", verifier_minutes: "min on the device", minutes: "min in all", calls: "model calls", tokens: "tokens" };

export function showLimits(form) {
  const place = form.querySelector("[data-limits]");
  if (!place) return;
  const value = (name) => form.elements[name]?.value ?? "";
  const show = () => {
    const said = Object.entries(UNITS)
      .filter(([name]) => value(name))
      .map(([name, unit]) => `${value(name)} ${unit}`);
    if (value("dollars")) said.push(`$${value("dollars")}`);
    place.textContent = said.join(", ");
  };
  form.addEventListener("input", show);
  form.addEventListener("change", show);
  show();
}

// Quick, Normal and Thorough fill in the limits. Changing a limit by hand selects the person's own limits.
export function chooseAmount(form) {
  const place = form.querySelector("[data-amounts]");
  if (!place) return;
  const amounts = JSON.parse(place.dataset.amounts);
  const fill = () => {
    for (const [name, value] of Object.entries(amounts[form.elements.amount.value] ?? {})) form.elements[name].value = value;
  };
  place.addEventListener("change", fill);
  const limits = new Set(Object.values(amounts).flatMap((named) => Object.keys(named)));
  form.addEventListener("input", (event) => {
    if (limits.has(event.target.name)) form.elements.amount.value = "own";
  });
  fill();
}

// Ctrl+Enter submits from anywhere, including an editor.
export function submitByKey(form) {
  addEventListener(
    "keydown",
    (event) => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      event.stopPropagation();
      form.requestSubmit(form.querySelector(".submit-button"));
    },
    true,
  );
}
