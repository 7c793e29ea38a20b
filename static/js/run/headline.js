// @ts-check
// Computes the headline of a run or candidate: its outcome, how certain it is, and the speedup over the best measured baseline.
// webapp/runs/headline.py computes the same for a run that is not being watched.
import { h } from "./dom.js";
import { speedupText } from "./format.js";

export const NAMES = {
  eager: "eager",
  compile: "torch.compile",
  "compile-max-autotune": "torch.compile max-autotune",
  "compile-reduce-overhead": "torch.compile reduce-overhead",
  "cuda-graph": "a CUDA graph of eager",
};
export const OUTCOMES = {
  faster: ["ok", "▲", "Faster (confirmed)"],
  promising: ["info", "△", "Faster so far (provisional)"],
  none: ["idle", "=", "No reliable speedup: keep your model"],
  wrong: ["bad", "✕", "Not correct"],
  noisy: ["warn", "~", "Host too noisy to tell"],
  unmeasured: ["warn", "!", "Not measured: host error"],
  cancelled: ["idle", "–", "Cancelled before a result"],
};
const UNMEASURED = { inconclusive: "noisy", infrastructure_error: "unmeasured" };
const NOTHING = { outcome: "", first: null, against: "", eager: null, provisional: false };

const outcomeOf = (figure, confirmed) => (!(figure.low > 1) ? "none" : confirmed ? "faster" : "promising");

// `verdict` is {status, speedup (over eager), tier}. `report` is its report, if known, which names the other baselines.
export function headlineOf(verdict, report = null) {
  if (!verdict?.status) return NOTHING;
  if (verdict.status !== "passed") return { ...NOTHING, outcome: UNMEASURED[verdict.status] ?? "wrong" };
  if (!verdict.speedup) return NOTHING;
  const measured = report?.timing?.comparisons ?? [];
  const best = measured.reduce((least, one) => (!least || one.speedup.ratio < least.speedup.ratio ? one : least), null);
  const confirmed = verdict.tier === "full";
  if (!best || best.baseline === "eager") {
    const provisional = measured.length < 2;
    return { outcome: outcomeOf(verdict.speedup, confirmed && !provisional), first: verdict.speedup, against: NAMES.eager, eager: null, provisional };
  }
  return { outcome: outcomeOf(best.speedup, confirmed), first: best.speedup, against: NAMES[best.baseline] ?? best.baseline, eager: verdict.speedup, provisional: false };
}

// `best` is the run's best candidate, or null if none has passed.
export function headlineOfRun(state, best, report = null) {
  const found = headlineOf(best, report);
  const { run } = state;
  if (found.outcome || run.state !== "finished") return found;
  if (run.outcome === "inconclusive" || run.outcome === "cancelled") return { ...NOTHING, outcome: run.outcome === "cancelled" ? "cancelled" : "noisy" };
  const last = [...state.candidates.values()].findLast((candidate) => candidate.status);
  if (run.outcome === "out_of_budget" && UNMEASURED[last?.status]) return headlineOf(last);
  if (run.workflow === "verify" && last && last.status !== "passed") return headlineOf(last);
  if (run.speedup) return { ...NOTHING, outcome: outcomeOf(run.speedup, false), first: run.speedup, against: NAMES.eager, provisional: true };
  return { ...NOTHING, outcome: "none" };
}

export const useful = ({ outcome }) => outcome === "faster" || outcome === "promising";

// Renders the same as templates/partials/headline.html.
export function figuresOf({ first, against, eager, provisional }, brief = false) {
  if (!first) return [h("span", { class: "speedup" }, h("b", null, "–"))];
  const named = h("span", { class: "muted over" }, `over ${against}${provisional ? " (provisional)" : ""}`);
  return [speedupText(first), " ", named, !brief && eager ? [" ", h("span", { class: "muted over second" }, speedupText(eager), " over eager")] : null].flat().filter(Boolean);
}

// Renders the same as templates/partials/outcome.html.
export function outcomeChip({ outcome }) {
  if (!outcome) return null;
  const [tone, sign, word] = OUTCOMES[outcome];
  return h("span", { class: `chip ${tone} outcome` }, h("span", { class: "sign", "aria-hidden": "true" }, sign), word);
}

// What a run that ended early needs to continue, in the wording of webapp.runs.headline.to_go_on.
export function toGoOn({ state, outcome, reason, workflow }) {
  if (state !== "finished" || workflow === "verify") return "";
  if (outcome === "out_of_budget") return "To continue, raise the budget.";
  return /stopped early/.test(reason ?? "") ? "To continue, fork the run with another workflow, a language model or more strategies." : "";
}

// Reports, keyed by the hash of their result. Each is fetched once.
export class Reports {
  constructor(base) {
    this.base = base;
    this.known = new Map();
  }

  get(sha) {
    if (!this.known.has(sha)) {
      const asked = fetch(`${this.base}artefacts/${sha}`, { credentials: "same-origin" })
        .then((answer) => (answer.ok ? answer.json() : null))
        .then((result) => result?.report ?? null)
        .catch(() => null);
      this.known.set(sha, asked);
    }
    return this.known.get(sha);
  }
}
