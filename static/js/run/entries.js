// @ts-check
// Renders the entries of the conversation. Each function returns the children of an entry's body.
import { h, setText } from "./dom.js";
import { callDetails, callLine } from "./calls.js";
import { chip, figure, interval, ms, seconds, size, speedupText, statusOf, times } from "./format.js";
import { progressText } from "./progress.js";
import { expectedSeconds } from "./store.js";
import { write } from "./selection.js";
import { counted } from "../lib/words.js";

export const AGENTS = { planner: "Planner", coder: "Coder", verifier: "Verifier", engine: "Engine", person: "Person" };
const STAGES = {
  admit: ["admit"],
  capture: ["capture"],
  verify: ["static", "build", "correctness", "timing", "integrity"],
  profile: ["profile"],
};
const WORTH_SAYING = 0.5; // in seconds; shorter waits in the queue are not shown
const JOBS = { admit: "Is the task sound?", capture: "Capture of the model's graph", verify: "Verification", profile: "Profile" };
const ROUTES = { repair: "Repair", optimise: "Optimise further", "next-step": "Next step", "re-plan": "Plan again", stop: "Stop" };
const WAYS = { begun: "begins", leads: "takes the lead", trails: "does not take the lead", migrated: "migrates", ended: "ends" };

// Kinds that are shown as one quiet line without an author's name.
export const QUIET = new Set(["span", "llm", "artefact", "profile", "state", "control"]);

export const ENTRIES = {
  started(item) {
    const { payload } = item;
    const facts = [
      ["task", payload.task?.name],
      ["workflow", payload.workflow],
      ["planner", payload.planner],
      ["coder", payload.coder],
      ["verifier", payload.judge],
      ["language", payload.language],
      ["device", payload.device],
      ["precision", payload.precision],
      ["mode", payload.mode],
      ["target", payload.target == null ? null : `${payload.target}× eager`],
    ].filter(([, value]) => value != null && value !== "");
    return [h("p", null, "The run has started."), h("p", { class: "facts-line" }, facts.map(([name, value]) => h("span", null, h("span", { class: "faint" }, `${name} `), String(value))))];
  },

  span(item) {
    return [h("h3", { class: "span-title" }, item.title)];
  },

  plan(item) {
    const { plan } = item;
    const steps = Array.isArray(plan.steps) ? plan.steps : [];
    const table = h(
      "table",
      { class: "table plan" },
      h("thead", null, h("tr", null, ["Step", "Where", "Strategies", "Floor", "Expected"].map((name) => h("th", { scope: "col" }, name)))),
      h(
        "tbody",
        null,
        steps.map((step) => {
          const why = [step.reason, step.contract ? `contract: ${shown(step.contract)}` : "", step.risk ? `risk: ${shown(step.risk)}` : ""].filter(Boolean).join(" · ");
          return [
            h("tr", { class: "step" }, h("td", null, h("b", null, step.title || step.id || "")), h("td", null, spaceTag(step.space)), h("td", null, listed(step.strategies) || "–"), floorCell(step), h("td", { class: "nowrap" }, shown(step.expected) || "–")),
            h("tr", { class: "why" }, h("td", { colspan: 5 }, h("span", { class: "mono" }, operators(step.operators)), why ? h("span", { class: "cell-sub" }, why) : null)),
          ];
        }),
      ),
    );
    return [
      plan.summary ? h("p", { class: "prose" }, plan.summary) : null,
      plan.floor_ms == null ? null : h("p", { class: "muted" }, `Physical floor of the task on this device: ${ms(plan.floor_ms)}`),
      steps.length ? h("div", { class: "table-wrap", tabindex: "0", role: "region", "aria-label": "Steps of the plan" }, table) : null,
    ];
  },

  candidate(item, state) {
    const candidate = state.candidates.get(item.candidate);
    const parent = candidate.parent == null ? "from the reference" : `from candidate ${candidate.parent}`;
    return [
      h(
        "p",
        { class: "candidate-line" },
        h("a", { class: "candidate-name", href: write({ candidate: candidate.number, tab: "diff" }) }, `Candidate ${candidate.number}`),
        h("span", null, candidate.title),
      ),
      candidate.changes ? h("p", { class: "prose" }, candidate.changes) : null,
      h("p", { class: "facts-line faint" }, [parent, candidate.author ? `written by ${candidate.author}` : "", candidate.strategy ? `strategy ${candidate.strategy}` : "", candidate.program ? size(candidate.program.bytes ?? 0) : ""].filter(Boolean).map((text) => h("span", null, text))),
    ];
  },

  verification(item, state, now) {
    const subject = item.candidate == null ? (item.job === "profile" ? "Profile of the reference" : JOBS[item.job]) : `${JOBS[item.job] ?? item.job} of candidate ${item.candidate}`;
    const head = h("p", { class: "verdict-line" }, h("span", null, subject ?? item.job), item.tier && !item.finishedAt ? h("span", { class: "faint" }, item.tier) : null, verdictOf(item), item.attempt > 1 ? h("span", { class: "faint" }, `attempt ${item.attempt}`) : null);
    return [
      head,
      stageList(item, state, now),
      item.message && item.status !== "passed" ? h("p", { class: "prose reason" }, item.message) : null,
      item.flags?.length ? h("p", { class: "facts-line" }, item.flags.map((flag) => h("span", { class: "tag flag" }, String(flag)))) : null,
      item.finishedAt && item.candidate != null && item.job === "verify"
        ? h("p", { class: "facts-line" }, h("a", { href: write({ candidate: item.candidate, tab: "report" }) }, "How this was measured"))
        : null,
    ];
  },

  profile(item) {
    const subject = item.candidate == null ? "the reference" : `candidate ${item.candidate}`;
    const target = item.candidate == null ? write({ reference: true, tab: "timeline" }) : write({ candidate: item.candidate, tab: "timeline" });
    return [h("p", null, `Timeline of ${subject}${item.tool ? ` by ${item.tool}` : ""} `, item.timeline ? h("a", { href: target }, "open") : "was not recorded")];
  },

  diagnosis(item) {
    const { diagnosis } = item;
    const evidence = Array.isArray(diagnosis.evidence) ? diagnosis.evidence : [];
    return [
      h(
        "p",
        { class: "verdict-line" },
        diagnosis.candidate == null ? "Diagnosis" : `Diagnosis of candidate ${diagnosis.candidate}`,
        h("span", { class: "tag" }, diagnosis.bottleneck === "none" ? "nothing left" : diagnosis.bottleneck === "defect" ? "defect" : `bound by ${diagnosis.bottleneck ?? "?"}`),
        diagnosis.headroom == null ? null : h("span", { class: "muted" }, `headroom ${typeof diagnosis.headroom === "number" ? `${times(diagnosis.headroom)}×` : shown(diagnosis.headroom)}`),
      ),
      diagnosis.text ? h("p", { class: "prose" }, diagnosis.text) : null,
      evidence.length
        ? h(
            "table",
            { class: "evidence" },
            h(
              "tbody",
              null,
              evidence.map((one) => h("tr", null, h("th", { scope: "row" }, one.figure ?? ""), h("td", { class: "num" }, `${figure(one.value)}${one.unit ? ` ${one.unit}` : ""}`), h("td", { class: "muted" }, one.means ?? ""))),
            ),
          )
        : null,
      diagnosis.documents?.length ? h("p", { class: "facts-line" }, h("span", { class: "faint" }, "cites"), diagnosis.documents.map(citation)) : null,
      diagnosis.method ? h("p", null, h("span", { "aria-hidden": "true" }, "→ "), "method: ", h("a", { href: `/strategies/${encodeURIComponent(diagnosis.method)}/` }, diagnosis.method)) : null,
    ];
  },

  decision(item) {
    const { decision, realised } = item;
    return [
      h("p", { class: "verdict-line" }, h("span", { class: "route" }, h("span", { "aria-hidden": "true" }, "→ "), ROUTES[decision.route] ?? decision.route ?? "Decision"), decision.expected == null || decision.expected === "" ? null : h("span", { class: "muted" }, `expected ${shown(decision.expected)}`)),
      decision.reason ? h("p", { class: "prose" }, decision.reason) : null,
      realised == null ? null : h("p", { class: "realised" }, `measured ${shown(realised)}`),
    ];
  },

  way(item) {
    const { way } = item;
    const program = way.candidate == null ? null : h("a", { href: write({ candidate: way.candidate }) }, `candidate ${way.candidate}`);
    return [
      h("p", { class: "verdict-line" }, h("span", { class: "route" }, `Branch ${way.way} `, WAYS[way.what] ?? way.what ?? ""), program, way.of == null ? null : h("span", { class: "muted" }, `of branch ${way.of}`)),
      way.reason ? h("p", { class: "prose" }, way.reason) : null,
      way.speedup && way.beside != null ? h("p", { class: "realised" }, `${times(way.speedup.ratio)}× ${interval(way.speedup)} of candidate ${way.beside}, timed in alternation`) : null,
    ];
  },

  note(item) {
    return [h("p", { class: "prose" }, item.text), h("p", { class: "faint small" }, [item.by ? `by ${item.by}` : "", item.to ? `to ${AGENTS[item.to] ?? item.to}` : ""].filter(Boolean).join(", "))];
  },

  llm(item, _state, _now, reading) {
    const opened = reading.calls.get(item.id);
    return [callLine(item, AGENTS[item.agent] ?? "Agent", Boolean(opened)), opened ? callDetails(item, opened) : null];
  },

  idea(item) {
    const { idea } = item;
    const node = idea.situation === "tree";
    const from = idea.parents?.length ? `out of ${idea.parents.map((parent) => `idea ${parent}`).join(" and ")}` : "";
    return [
      h("p", { class: "verdict-line" }, h("b", null, node ? `Node n${idea.idea}` : `Idea ${idea.idea}`), h("span", null, idea.title ?? "")),
      idea.text ? h("p", { class: "prose" }, idea.text) : null,
      h("p", { class: "facts-line faint" }, [from, idea.expected == null ? "" : `expected ${times(idea.expected)}× ${node ? "the program above it" : "eager"}`, listed(idea.strategies)].filter(Boolean).map((text) => h("span", null, text))),
    ];
  },

  tree(item) {
    const { tree } = item;
    const open = (tree.nodes ?? []).filter((node) => node.state === "open").length;
    const title = { edited: "Tree edited", chosen: "Next", learned: "Learned" }[tree.what] ?? "Tree";
    const left = tree.left_out ?? [];
    return [
      h("p", { class: "verdict-line" }, h("b", null, title), h("a", { href: "#decisions" }, `revision ${tree.revision ?? 0}`), h("span", { class: "muted" }, `${counted(open, "open node")}`)),
      tree.reason ? h("p", { class: "prose" }, tree.reason) : null,
      tree.predicted == null ? null : h("p", { class: "facts-line" }, h("span", null, `predicted ${shown(tree.predicted)}`), h("span", { class: "realised" }, `came ${shown(tree.came)}`)),
      left.length ? h("ul", { class: "small muted" }, left.map((sentence) => h("li", null, `Left out: ${sentence}`))) : null,
    ];
  },

  artefact(item) {
    const { artefact } = item;
    return [h("p", null, `${item.title || artefact?.name || "Attached"} `, artefact ? h("a", { href: `artefacts/${encodeURIComponent(artefact.sha)}?download`, download: artefact.name || "artefact" }, `download (${size(artefact.bytes ?? 0)})`) : null)];
  },

  state(item) {
    return [h("p", null, item.title, item.text ? `: ${item.text}` : "")];
  },

  forked(item) {
    const changed = Object.entries(item.changed).map(([name, value]) => h("span", null, h("span", { class: "faint" }, `${name.replaceAll("_", " ")} `), name === "budget" ? listedLimits(value) : shown(value) || "–"));
    return [
      h("p", null, `Forked${item.by ? ` by ${item.by}` : ""}: everything above was inherited `, item.from ? h("a", { href: `/runs/${encodeURIComponent(item.from.run)}/#event=${item.from.seq}` }, `up to event ${item.from.seq} of its parent`) : "", "."),
      h("p", { class: "facts-line" }, changed.length ? changed : h("span", { class: "faint" }, "The settings are the same.")),
    ];
  },

  control(item) {
    const words = { pause: "asked to pause", resume: "asked to resume", cancel: "asked to cancel", "raise-budget": "raised the budget" };
    return [h("p", null, `${item.by || "Somebody"} ${words[item.action] ?? item.action}`)];
  },

  error(item) {
    return [
      h("p", { class: "prose" }, h("b", null, item.message)),
      item.where ? h("p", { class: "faint" }, `in ${shown(item.where)}`) : null,
      item.kept ? h("p", { class: "muted" }, `kept: ${shown(item.kept)}`) : null,
    ];
  },

  finished(item) {
    const { payload } = item;
    return [
      h("p", { class: "verdict-line" }, chip(["cancelled", "out_of_budget", "inconclusive"].includes(payload.outcome) ? payload.outcome : "finished"), payload.speedup ? [speedupText(payload.speedup), h("span", { class: "muted" }, "vs eager")] : null),
      h("p", { class: "prose" }, payload.reason ?? ""),
      payload.best == null ? null : h("p", { class: "facts-line" }, h("a", { href: write({ candidate: payload.best, tab: "report" }) }, `Candidate ${payload.best}`), h("a", { href: "best.py", download: "best.py" }, "Download best.py")),
    ];
  },
};

// A passage from a team's document. A passage from a folder, in a trace from the command line, has no page to link to.
function citation(cited) {
  const [, document, index] = /^([0-9a-f-]{36})\/(\d+)$/.exec(cited.id ?? "") ?? [];
  return document ? h("a", { href: `/documents/${document}/#p${index}` }, cited.title) : h("span", null, cited.title);
}

function spaceTag(space) {
  return h("span", { class: `tag${space === "own kernel" ? " class-custom" : ""}` }, space || "–");
}

const listedLimits = (limits) => Object.entries(limits).filter(([, limit]) => limit != null).map(([unit, limit]) => `${unit.replaceAll("_", " ")} ${figure(limit)}`).join(", ");

const operators = (value) => listed(value).replaceAll("aten.", "").replaceAll(".default", "");

const listed = (value) => (Array.isArray(value) ? value.map(shown).join(", ") : shown(value));

// The least time that a step can take on this device, the bound behind it, and the plan's expectation.
function floorCell(step) {
  const more = [step.bound ? `bound by ${step.bound}` : "", step.expected_ms == null ? "" : `expected ${ms(step.expected_ms)}`].filter(Boolean).join(", ");
  return h("td", { class: "nowrap" }, ms(step.floor_ms), more ? h("span", { class: "cell-sub" }, more) : null);
}

// Converts a value to text, whatever its type.
function shown(value) {
  if (value == null) return "";
  if (typeof value === "number") return `${times(value)}×`;
  if (typeof value !== "object") return String(value);
  if ("ratio" in value && typeof value.ratio === "number") return `${times(value.ratio)}× ${interval(value)}`.trim();
  return Object.entries(value)
    .map(([name, inner]) => `${name.replaceAll("_", " ")} ${typeof inner === "number" ? figure(inner) : typeof inner === "object" && inner ? shown(inner) : String(inner)}`)
    .join(", ");
}

function verdictOf(item) {
  if (!item.finishedAt) return item.startedAt ? chip("running", "running") : chip("queued", "waiting for a verifier");
  if (item.job === "admit" && item.ok != null) return item.ok ? chip("passed", "sound") : chip("failed", "refused");
  if (item.status) {
    const parts = [chip(item.status)];
    if (item.speedup) parts.push(speedupText(item.speedup), h("span", { class: "muted" }, "vs eager"));
    if (item.programClass) parts.push(h("span", { class: `tag class-${item.programClass}` }, item.programClass));
    if (item.tier) parts.push(h("span", { class: "faint" }, item.tier));
    return parts;
  }
  return item.message ? chip("infrastructure_error") : chip("ok", "done");
}

// The stages in one row: finished ones, the running one with its clock, and those still to come.
function stageList(item, state, now) {
  const told = item.stages.filter((stage) => stage.name !== "queue" || stage.status !== "passed" || stage.seconds >= WORTH_SAYING);
  const known = new Map(told.map((stage) => [stage.name, stage]));
  const ahead = item.finishedAt ? [] : (STAGES[item.job] ?? []).filter((name) => !known.has(name));
  const names = [...known.keys(), ...ahead];
  if (!names.length) return null;
  return h(
    "ol",
    { class: "stages" },
    names.map((name) => {
      const stage = known.get(name);
      const [tone, sign, word] = stage ? statusOf(stage.status) : ["ahead", "○", "to come"];
      const running = stage && (stage.status === "started" || stage.status === "progress");
      const expected = expectedSeconds(state, item, name);
      const time = h("span", { class: "stage-time" });
      if (running) {
        time.dataset.from = stage.startedAt;
        if (expected != null) time.dataset.expected = expected;
        tickStage(time, now);
      } else if (stage?.seconds != null) setText(time, seconds(stage.seconds));
      else if (!stage && expected != null) setText(time, `~${seconds(expected)}`);
      return h("li", { class: `stage ${tone}`, title: [name, word, stage?.detail].filter(Boolean).join(": ") }, h("span", { class: "sign", "aria-hidden": "true" }, sign), h("span", null, name), h("span", { class: "visually-hidden" }, word), time);
    }),
  );
}

export function tickStage(time, now) {
  const spent = Math.max(0, Math.floor((now - Date.parse(time.dataset.from)) / 1000));
  setText(time, progressText(spent, time.dataset.expected == null ? null : Number(time.dataset.expected)));
}

// The single line of a collapsed entry.
export function summaryOf(item, state) {
  const words = {
    message: () => item.text,
    plan: () => item.plan.summary,
    candidate: () => `Candidate ${item.candidate}: ${state.candidates.get(item.candidate)?.title ?? ""}`,
    verification: () => `${JOBS[item.job] ?? item.job}${item.candidate == null ? "" : ` of candidate ${item.candidate}`}: ${item.finishedAt ? statusOf(item.status || (item.ok === false || item.message ? "failed" : "ok"))[2] : "going on"}${item.speedup ? `, ${times(item.speedup.ratio)}×` : ""}`,
    diagnosis: () => item.diagnosis.text,
    decision: () => `${ROUTES[item.decision.route] ?? item.decision.route ?? ""}: ${item.decision.reason ?? ""}`,
    way: () => `Way ${item.way.way} ${WAYS[item.way.what] ?? item.way.what ?? ""}: ${item.way.reason ?? ""}`,
    note: () => item.text,
    idea: () => item.idea.title,
    tree: () => item.tree.reason ?? "",
    error: () => item.message,
    started: () => "The run has started.",
    forked: () => "Forked",
    finished: () => item.payload.reason,
  }[item.kind];
  return (words?.() ?? "").slice(0, 200).replaceAll(/\s+/g, " ");
}

// Says that a string arrived as a preview, with the server's count.
export function cutLines(item, reading) {
  const opened = reading.strings.get(item.id);
  if (opened?.error) return [h("p", { class: "small" }, `The rest could not be loaded: ${opened.error}.`)];
  if (opened) return Object.entries(opened).map(([name, text]) => [h("h4", { class: "small faint" }, name.replaceAll("_", " ")), h("p", { class: "prose" }, text)]);
  const counts = Object.entries(item.cut).map(([name, characters]) => `${name.replaceAll("_", " ")}: ${counted(characters, "character")}`);
  return [h("p", { class: "more-line" }, h("button", { type: "button", class: "more", "data-strings": item.id }, `Show all (${counts.join(", ")})`))];
}
