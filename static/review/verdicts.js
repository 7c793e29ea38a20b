// @ts-check
// Requests the candidate's panel and the run's notices again when verdicts change while a page is open.
let known = null;

export async function showVerdicts(verdicts) {
  const now = JSON.stringify(verdicts);
  const first = known === null;
  const changed = known !== now;
  known = now;
  if (first || !changed) return;
  const panel = document.getElementById("verdict");
  if (panel && !panel.contains(document.activeElement) && !panel.querySelector("details[open]")) await replace(panel, panel.dataset.address, "#verdict");
  const notices = document.querySelector("[data-verdict-notices]");
  if (notices) await replace(notices, location.href, "[data-verdict-notices]");
}

async function replace(element, address, selector) {
  try {
    const answer = await fetch(address, { credentials: "same-origin", headers: selector === "#verdict" ? { "HX-Request": "true" } : {} });
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector(selector);
    if (!fresh) return;
    const adopted = document.adoptNode(fresh);
    element.replaceWith(adopted);
    window.htmx?.process(adopted);
  } catch {
    // the network is down, so the page stays as it was
  }
}
