// @ts-check
// Answers a visitor's first questions: is the run making progress, how certain is the result, and what has it cost?
import { chip, count, interval, ms, seconds, statusOf } from "./format.js";
import { h, setText } from "./dom.js";
import { figuresOf, headlineOfRun, NAMES, outcomeChip, toGoOn, useful } from "./headline.js";
import { leftText, progressText, roughly, secondsLeft, Standing } from "./progress.js";
import { bestCandidate, expectedSeconds } from "./store.js";
import { clock } from "../lib/ago.js";
import { term } from "../lib/terms.js";
import { sentence } from "../lib/words.js";

const ROLES = { planner: "Planner", coder: "Coder", verifier: "Verifier" };
const WRITERS = { planner: "Planner", coder: "Coder", verifier: "Verifier" };

export class Header {
  constructor(root, config, now, reports) {
    this.config = config;
    this.now = now;
    this.part = (name) => root.querySelector(`[data-part="${name}"]`);
    this.reports = reports;
    this.said = "";
    this.standing = new Standing(config.standing);
    this.title = document.title;
  }

  draw(state) {
    this.state = state;
    const { run } = state;
    const status = endOf(run);
    const key = `${status} ${run.waiting}`;
    if (this.said !== key) {
      this.said = key;
      this.part("status").replaceChildren(run.waiting && run.state !== "finished" ? chip("paused", run.waiting) : chip(status));
      for (const button of this.part("controls")?.querySelectorAll("button[data-action]") ?? []) {
        const shown = { pause: run.state === "running" || run.state === "queued", resume: run.state === "paused", cancel: run.state !== "finished" }[button.dataset.action];
        button.hidden = !shown;
        button.disabled = Boolean(run.waiting);
      }
      this.part("finished").hidden = run.state !== "finished" || run.best == null;
      if (this.part("note")) this.part("note").hidden = run.state === "finished";
      if (this.part("fork")) this.part("fork").hidden = !state.last;
    }
    if (this.part("more-budget")) this.part("more-budget").hidden = run.state === "finished" && !run.refused;
    this.drawPause(state);
    this.drawUsage(state);
    this.drawBest(state);
    this.drawSpent(state);
    this.tick();
  }

  // Why the run is paused, if no person paused it, and what to do.
  drawPause(state) {
    const pause = state.run.state === "paused" && state.run.pause?.kind ? state.run.pause : null;
    this.part("pause").hidden = !pause;
    if (!pause) return;
    const reason = pause.reason ?? "";
    setText(this.part("pause-reason"), reason.charAt(0).toUpperCase() + reason.slice(1));
    setText(this.part("pause-hint"), pause.kind === "review" ? "Nothing is spent while it waits. Resume the run, or edit the plan first." : `${pause.hint ? `To do: ${pause.hint}. ` : ""}No progress is lost; resume the run once the model can answer.`);
    if (this.part("edit-plan")) this.part("edit-plan").hidden = pause.kind !== "review";
  }

  drawUsage(state) {
    const rows = [...state.usage.values()];
    this.part("usage").hidden = !rows.length;
    if (!rows.length) return;
    const cells = (row) => [
      ROLES[row.role] ?? row.role,
      row.profile,
      count(row.calls) + (row.failed ? `, ${row.failed} failed` : ""),
      row.uncounted ? "not counted" : count(row.input),
      row.uncounted ? "not counted" : count(row.output),
      row.dollars == null ? "–" : `$${row.dollars.toFixed(row.dollars < 1 ? 4 : 2)}`,
      seconds(row.seconds),
    ];
    const mark = JSON.stringify(rows);
    if (mark === this.usageMark) return;
    this.usageMark = mark;
    const names = ["Role", "Model", "Calls", "Tokens in", "Tokens out", "Cost", "Time"];
    this.part("usage-table").replaceChildren(
      h(
        "table",
        { class: "table" },
        h("thead", null, h("tr", null, names.map((name, index) => h("th", { scope: "col", class: index > 1 ? "num" : null }, name)))),
        h("tbody", null, rows.map((row) => h("tr", null, cells(row).map((text, index) => h("td", { class: index > 1 ? "num" : null }, text))))),
      ),
    );
  }

  // The best speedup so far, over the best measured baseline once the report names it.
  drawBest(state) {
    const best = bestCandidate(state);
    const { run } = state;
    const mark = `${best?.number} ${best?.resultSeq} ${run.state} ${run.outcome} ${run.speedup?.ratio}`;
    if (mark === this.bestMark) return;
    this.bestMark = mark;
    if (!best?.result?.sha || best.tier !== "full") return this.showBest(state, best, null);
    this.reports.get(best.result.sha).then((report) => {
      if (this.bestMark === mark) this.showBest(state, best, report);
    });
  }

  showBest(state, best, report) {
    const found = headlineOfRun(state, best, report);
    this.part("best").replaceChildren(...figuresOf(found));
    const chip = outcomeChip(found);
    this.part("outcome").replaceChildren(...(chip ? [chip] : [h("span", { class: "faint" }, "No passing program yet")]));
    this.part("download")?.classList.toggle("primary", useful(found));
    this.part("best-facts").replaceChildren(...(best ? factsOf(best, report) : [h("span", { class: "faint" }, "Nothing has been measured yet.")]));
    if (best?.result?.sha && !report) this.reports.get(best.result.sha).then((known) => known && this.part("best-facts").replaceChildren(...factsOf(best, known)));
  }

  drawSpent(state) {
    const { spent, limits } = state;
    const of = (limit, show) => (limit == null ? "" : ` / ${show(limit)}`);
    const proposed = state.candidates.size;
    const rows = state.run.workflow === "verify" ? [] : [["candidates", `${proposed}${of(limits.candidates, count)}`]];
    if (spent.calls || limits.calls != null) rows.push(["LLM calls", `${count(spent.calls ?? 0)}${of(limits.calls, count)}`]);
    if (spent.tokens || limits.tokens != null) rows.push(["tokens", `${count(spent.tokens ?? 0)}${of(limits.tokens, count)}`]);
    rows.push(["cost", `$${(spent.dollars ?? 0).toFixed(2)}${of(limits.dollars, (v) => `$${v.toFixed(2)}`)}`]);
    rows.push(["verifier", `${seconds(spent.verifier_seconds ?? 0)}${of(limits.verifier_seconds, seconds)}`]);
    const text = rows.map((row) => row.join(" ")).join("|");
    if (text === this.spentText) return;
    this.spentText = text;
    this.part("spent").replaceChildren(...rows.flatMap(([name, value]) => [h("dt", null, name), h("dd", null, value)]));
  }

  // The line below the title, which says what is happening now or how the run ended.
  tick() {
    const { state } = this;
    if (!state) return;
    const { run } = state;
    const end = run.finishedAt ? Date.parse(run.finishedAt) : this.now();
    const begun = run.startedAt ?? this.config.createdAt;
    const passed = Math.max(0, (end - Date.parse(begun)) / 1000);
    const left = secondsLeft(state, this.config.usual?.seconds, passed);
    setText(this.part("elapsed"), clock(passed));
    setText(this.part("left"), leftText(left));
    setText(this.part("now"), this.nowText());
    const title = `${this.inBrief(left)}${this.title}`;
    if (document.title !== title) document.title = title;
  }

  // The text before the run's name in the browser tab: the time left, or the state.
  inBrief(left) {
    const { run } = this.state;
    if (run.state === "finished") return `${statusOf(endOf(run))[1]} `;
    if (run.waiting || run.state !== "running") return `${statusOf(run.state)[2]} · `;
    return left == null ? "" : `~${roughly(left)} · `;
  }

  nowText() {
    const { state } = this;
    const { run } = state;
    if (run.state === "finished") return [sentence(run.reason || statusOf(run.outcome)[2]), toGoOn(run)].filter(Boolean).join(" ");
    if (run.state === "paused") return run.pause?.kind ? "Paused." : "Paused: nothing is spent until you resume it.";
    if (!state.last) return this.standing.say("Waiting for a free orchestrator …");
    for (let index = state.items.length - 1, seen = 0; index >= 0 && seen < 60; index -= 1, seen += 1) {
      const item = state.items[index];
      if (item.kind === "verification" && !item.finishedAt) {
        if (!item.startedAt && !item.stages.length) return this.standing.say("Waiting for a free verifier …");
        this.standing.rest();
        return verificationText(state, item, this.now());
      }
      if (item.kind === "message" && !item.done && item.text) return `${WRITERS[item.agent] ?? "An agent"} is writing …`;
      if (item.kind === "llm" && !item.done) return `${WRITERS[item.agent] ?? "An agent"} asks ${item.profile || "the model"} … ${seconds(Math.max(0, Math.floor((this.now() - Date.parse(item.at)) / 1000)))}`;
    }
    return "Working …";
  }
}

// The state of the run. The outcome appears next to the figure, so this shows only outcomes that cut the run short.
const endOf = (run) => (run.state !== "finished" ? run.state : ["cancelled", "out_of_budget"].includes(run.outcome) ? run.outcome : "finished");

// The contents of Evidence: the candidate, how it was measured, its class, and how close it is to the floor.
function factsOf(best, report) {
  const parts = [h("a", { href: `#candidate=${best.number}&tab=report` }, `Report of candidate ${best.number}`)];
  if (best.programMs != null) parts.push(h("span", null, `${ms(best.programMs)} a call`));
  for (const one of report?.timing?.comparisons ?? []) parts.push(h("span", null, `${Number(one.speedup.ratio.toPrecision(3))}× ${interval(one.speedup)} over ${NAMES[one.baseline] ?? one.baseline}`));
  if (best.programClass) {
    const share = report?.own_share == null ? "" : ` ${Math.round(report.own_share * 100)} %`;
    parts.push(h("span", { class: `tag class-${best.programClass}`, title: "share of its device time in its own kernels" }, `${best.programClass}${share}`));
  }
  if (report?.floor_fraction != null) parts.push(h("span", { title: `physical floor ${ms(report.floor_ms)}` }, `${Math.round(report.floor_fraction * 100)} % of `, term("floor", "floor")));
  for (const flag of report?.flags ?? []) parts.push(h("span", { class: "tag flag" }, h("span", { "aria-hidden": "true" }, "⚑"), flag));
  parts.push(h("span", { class: "faint" }, term("confirmed", best.tier === "full" ? "full measurement" : "quick measurement")));
  return parts;
}

const JOBS = { admit: "Checking the task", capture: "Capturing the model's graph", verify: "Verifying", profile: "Profiling" };

function verificationText(state, item, now) {
  const subject = item.candidate == null ? (item.job === "profile" ? " the reference" : "") : ` candidate ${item.candidate}`;
  const stage = item.stages.findLast((known) => known.status === "started" || known.status === "progress");
  if (!stage) return `${JOBS[item.job] ?? item.job}${subject}: ${item.startedAt ? "between stages" : "waiting for a verifier"} …`;
  const spent = Math.max(0, Math.floor((now - Date.parse(stage.startedAt)) / 1000));
  const expected = expectedSeconds(state, item, stage.name);
  return `${JOBS[item.job] ?? item.job}${subject}: ${stage.name}, ${progressText(spent, expected)}${stage.detail ? ` (${stage.detail})` : ""}`;
}
