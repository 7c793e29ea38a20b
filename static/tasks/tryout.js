// @ts-check
// Tries out a source in the sandbox when its author pauses. htmx shows the result stage by stage, and problems are marked in the editor.
const PAUSE_MS = 1500;

/**
 * @param {SourceForm} form
 * @param {HTMLElement} panel
 * @param {SourceEditor} editor
 * @returns {{ ask(source: string): void, clear(): void }}
 */
export function attachTryOut(form, panel, editor) {
  const place = /** @type {HTMLElement | null} */ (panel.querySelector("[data-try]"));
  if (!place) return { ask() {}, clear() {} };
  /** @returns {HTMLInputElement | HTMLSelectElement | null} */
  const fieldOf = (name) => /** @type {HTMLInputElement | HTMLSelectElement | null} */ (form.elements.namedItem(name));
  let timer = null;
  let asked = null;
  let known = "";
  const idle = place.querySelector("[data-idle]");

  async function send(source) {
    asked?.abort();
    asked = new AbortController();
    const value = (name) => fieldOf(name)?.value ?? "";
    const body = new URLSearchParams({ source, device: value("device"), precision: value("precision"), mode: value("mode"), team: value("team") });
    const answer = await fetch(place.dataset.try, { method: "POST", signal: asked.signal, headers: { "X-CSRFToken": form.elements.csrfmiddlewaretoken.value }, body }).catch(() => null);
    if (!answer?.ok || answer.redirected || source !== editor.text()) return;
    place.innerHTML = await answer.text();
    htmx.process(place);
    mark();
  }

  function mark() {
    const found = place.querySelector("script[type='application/json']");
    if (found) editor.showProblems(JSON.parse(found.textContent));
  }
  place.addEventListener("htmx:afterSwap", mark);

  const settings = () => JSON.stringify(["device", "precision", "mode"].map((name) => fieldOf(name)?.value));

  return {
    // Sent again only if the text or the settings have changed.
    ask(source) {
      const key = settings() + source;
      if (key === known) return;
      known = key;
      clearTimeout(timer);
      timer = setTimeout(() => send(source), PAUSE_MS);
    },
    // Ignore a response for another text.
    clear() {
      known = "";
      clearTimeout(timer);
      asked?.abort();
      if (!idle.isConnected) place.replaceChildren(idle);
    },
  };
}
