// @ts-check
// Applies each kind of event to the state. The same events in the same order always give the same state.
import { addItem, addText, candidateOf, ensureSpan, finishText, messageItem, numbered, spend, stageName, takeSettings, takeTimeline, takeVerdict, tell, usageOf, verificationItem } from "./state.js";
import { characters, newlines } from "./preview.js";

const FAILED = new Set(["wrong_result", "build_failed", "crashed", "timed_out", "rejected", "inconclusive", "infrastructure_error"]);

/** @type {import("./events.js").Folders} */
export const FOLDERS = {
  "run.started"(state, event, payload, changes) {
    const { run } = state;
    run.state = "running";
    run.startedAt ??= event.at;
    takeSettings(run, payload);
    if (payload.budget) state.limits = payload.budget;
    changes.header = true;
    addItem(state, changes, event, "started", { payload });
  },
  "run.paused"(state, event, payload, changes) {
    state.run.state = "paused";
    state.run.waiting = "";
    state.run.pause = payload;
    changes.header = true;
    addItem(state, changes, event, "state", { title: "Paused", text: [payload.reason, payload.hint].filter(Boolean).join(" – ") });
    changes.notices.push(`The run is paused. ${payload.kind ? (payload.reason ?? "") : ""}`);
  },
  "run.resumed"(state, event, payload, changes) {
    state.run.state = "running";
    state.run.waiting = "";
    state.run.pause = null;
    changes.header = true;
    addItem(state, changes, event, "state", { title: "Resumed", text: payload.reason ?? "" });
    changes.notices.push("The run continues.");
  },
  "run.forked"(state, event, payload, changes) {
    const { run } = state;
    Object.assign(run, { state: "running", waiting: "", pause: null, forked: payload.from ?? null, refused: false });
    if (payload.settings) takeSettings(run, payload.settings);
    if (payload.settings?.budget) state.limits = payload.settings.budget;
    // Work that the parent's verifiers and models had in progress does not belong to the fork.
    for (const item of state.items) if (item.kind === "verification" && !item.finishedAt) Object.assign(item, { finishedAt: event.at, message: "left to the parent" });
    for (const item of state.items) if (item.kind === "llm" && !item.done) Object.assign(item, { done: true, endedAt: event.at });
    changes.header = true;
    addItem(state, changes, event, "forked", { from: payload.from ?? null, changed: payload.changed ?? {}, by: payload.by ?? "" });
  },
  "run.finished"(state, event, payload, changes) {
    Object.assign(state.run, {
      state: "finished", outcome: payload.outcome ?? "", reason: payload.reason ?? "", best: payload.best ?? null,
      speedup: payload.speedup ?? null, finishedAt: event.at, waiting: "",
    });
    changes.header = changes.chart = changes.tree = true;
    addItem(state, changes, event, "finished", { payload });
    changes.notices.push(`The run has ended. ${payload.reason ?? ""}`);
  },
  "span.opened"(state, event, payload, changes) {
    const span = ensureSpan(state, event.span, changes);
    span.title = payload.title || span.title;
    span.openedAt ??= event.at;
    span.status = "open";
    changes.spans.add(span.path);
    changes.tree = true;
    const item = addItem(state, changes, event, "span", { path: event.span, title: span.title });
    span.firstItem ??= item.id;
  },
  "span.closed"(state, event, payload, changes) {
    const span = ensureSpan(state, event.span, changes);
    Object.assign(span, { status: payload.status ?? "ok", seconds: payload.seconds ?? null, summary: payload.summary ?? "", closedAt: event.at });
    if (span.firstItem) tell(state, event, state.itemById.get(span.firstItem));
    changes.spans.add(span.path);
    changes.tree = true;
  },
  "llm.requested"(state, event, payload, changes) {
    const item = addItem(state, changes, event, "llm", {
      key: payload.key, profile: payload.profile ?? "", purpose: payload.purpose ?? "", request: payload.request ?? null, notes: payload.notes?.length ?? 0,
      usage: null, dollars: null, done: false,
    });
    state.calls.set(payload.key, item);
    const before = state.messages.get(payload.key); // a fork repeats requests that were already answered in its parent
    if (before?.done) Object.assign(before, { done: false, answer: "" });
    changes.header = true;
  },
  "llm.completed"(state, event, payload, changes) {
    const item = state.calls.get(payload.key) ?? addItem(state, changes, event, "llm", { key: payload.key, profile: payload.profile ?? "", purpose: payload.purpose ?? "", request: null });
    Object.assign(item, {
      usage: payload.usage ?? null, dollars: payload.dollars ?? null, seconds: payload.seconds ?? null, model: payload.model ?? "", finish: payload.finish ?? "stop",
      attempts: payload.attempts ?? 1, reply: payload.reply ?? null, reasoning: payload.reasoning ?? null, done: true, endedAt: event.at,
    });
    tell(state, event, item);
    changes.items.add(item.id);
    const message = state.messages.get(payload.key); // the streamed text is now complete
    if (message) {
      Object.assign(message, { done: true, answer: item.profile });
      finishText(message);
      changes.items.add(message.id);
    }
    const tokens = (payload.usage?.input_tokens ?? 0) + (payload.usage?.output_tokens ?? 0);
    spend(state, event, changes, { tokens, dollars: payload.dollars, calls: payload.attempts ?? 1 });
    const row = usageOf(state, payload, event.agent);
    row.calls += payload.attempts ?? 1;
    row.seconds += payload.seconds ?? 0;
    if (payload.usage) {
      row.input += payload.usage.input_tokens ?? 0;
      row.output += payload.usage.output_tokens ?? 0;
    } else row.uncounted += 1;
    if (payload.dollars != null) row.dollars = (row.dollars ?? 0) + payload.dollars;
    changes.header = true;
  },
  "llm.failed"(state, event, payload, changes) {
    const item = state.calls.get(payload.key);
    spend(state, event, changes, { calls: payload.attempts, failures: 1 });
    if (item && !item.done) {
      tell(state, event, item);
      Object.assign(item, { done: true, failed: payload.message ?? "no answer", endedAt: event.at });
      changes.items.add(item.id);
    } else addItem(state, changes, event, "llm", { key: payload.key, profile: payload.profile ?? "", purpose: payload.purpose ?? "", done: true, failed: payload.message ?? "no answer" });
    const row = usageOf(state, payload, payload.role ?? event.agent);
    row.calls += payload.attempts ?? 0;
    row.failed += 1;
    changes.header = true;
  },
  "effect.completed"(state, _event, payload, changes) {
    if (payload.name === "budget.refused") state.run.refused = changes.header = true;
  },
  "message.delta"(state, event, payload, changes) {
    const item = messageItem(state, event, payload.message, changes);
    if (!item.done) addText(item, payload);
  },
  "message.completed"(state, event, payload, changes) {
    const item = messageItem(state, event, payload.message, changes);
    tell(state, event, item);
    if (typeof payload.text === "string") {
      Object.assign(item, { text: payload.text, gap: false });
      item.characters = payload.characters ?? characters(payload.text);
      item.newlines = payload.newlines ?? newlines(payload.text);
    }
    item.artefact = payload.artefact ?? null;
    item.done = true;
    finishText(item);
  },
  "note.added"(state, event, payload, changes) {
    addItem(state, changes, event, "note", { text: payload.text ?? "", to: payload.to ?? "", by: payload.by ?? "" });
  },
  "plan.proposed"(state, event, payload, changes) {
    state.run.planned = event.seq;
    addItem(state, changes, event, "plan", { plan: payload, edited: false });
  },
  "plan.edited"(state, event, payload, changes) {
    addItem(state, changes, event, "plan", { plan: payload, edited: true });
  },
  "idea.proposed"(state, event, payload, changes) {
    addItem(state, changes, event, "idea", { idea: payload });
  },
  "tree.changed"(state, event, payload, changes) {
    state.tree = event.seq;
    addItem(state, changes, event, "tree", { tree: payload });
  },
  "candidate.proposed"(state, event, payload, changes) {
    const candidate = candidateOf(state, payload.candidate, changes);
    Object.assign(candidate, {
      parent: payload.parent ?? null, title: payload.title ?? "", changes: payload.changes ?? "", strategy: payload.strategy ?? "", step: payload.step ?? "",
      span: event.span, seq: event.seq, at: event.at, sha: payload.sha ?? "", program: payload.program ?? null, author: payload.author ?? "",
    });
    if (payload.way != null) changes.ways = true;
    if (event.span) ensureSpan(state, event.span, changes).candidates.push(candidate.number);
    addItem(state, changes, event, "candidate", { candidate: candidate.number });
  },
  "verification.queued"(state, event, payload, changes) {
    const item = verificationItem(state, event, payload, changes);
    Object.assign(item, { job: payload.job ?? item.job, candidate: numbered(payload.candidate) ?? item.candidate, tier: payload.tier ?? item.tier });
    if (payload.attempt > item.attempt) Object.assign(item, { attempt: payload.attempt, stages: [], startedAt: null }); // its verifier died
    if (item.candidate != null && item.job === "verify") candidateOf(state, item.candidate, changes).running = item.id;
  },
  "verification.stage"(state, event, payload, changes) {
    const item = verificationItem(state, event, payload, changes);
    if (payload.attempt && payload.attempt > item.attempt) {
      item.attempt = payload.attempt; // the job was rescued, so its stages are reported again
      item.stages = [];
    }
    item.startedAt ??= event.at;
    let stage = item.stages.find((known) => known.name === payload.stage);
    if (!stage) {
      stage = { name: payload.stage, status: "", seconds: null, detail: "", startedAt: event.at };
      item.stages.push(stage);
    }
    stage.status = payload.status ?? "";
    if (payload.detail) stage.detail = payload.detail;
    if (payload.seconds != null) stage.seconds = payload.seconds;
    if (payload.status === "started") stage.startedAt = event.at;
    if (payload.status === "passed" && payload.seconds != null) {
      const name = stageName(item, payload.stage);
      if (!state.stageSeconds.has(name)) state.stageSeconds.set(name, []);
      state.stageSeconds.get(name).push(payload.seconds);
    }
    if (item.candidate != null) changes.candidates.add(item.candidate);
  },
  "verification.finished"(state, event, payload, changes) {
    const item = verificationItem(state, event, payload, changes);
    const job = payload.job ?? item.job;
    const candidate = numbered(payload.candidate) ?? item.candidate;
    Object.assign(item, {
      job, candidate, finishedAt: event.at, status: payload.status ?? "", message: payload.message ?? "", tier: payload.tier ?? "", speedup: payload.speedup ?? null,
      faster: payload.faster ?? false, programClass: payload.program_class ?? "", programMs: payload.program_ms ?? null, result: payload.result ?? null,
      ok: payload.ok ?? null, flags: payload.flags ?? [],
    });
    const well = job === "verify" ? item.status === "passed" : item.ok !== false && !item.message;
    for (const stage of item.stages) if (stage.status === "started" || stage.status === "progress") stage.status = well ? "passed" : "failed";
    if (FAILED.has(item.status)) spend(state, event, changes, { failures: 1 });
    if (job === "verify" && item.status === "passed" && (item.speedup?.low ?? 0) > state.bestLow) {
      state.bestLow = item.speedup.low;
      item.improved = true;
    }
    if (candidate != null && job === "verify") {
      const known = candidateOf(state, candidate, changes);
      takeVerdict(known, payload, event.seq);
      known.running = null;
      changes.ways ||= state.ways.size > 0;
      changes.header = true;
      changes.notices.push(`Candidate ${candidate}: ${(known.status || "no verdict").replaceAll("_", " ")}${known.speedup ? `, ${known.speedup.ratio.toFixed(2)} times eager` : ""}.`);
    }
    if (payload.timeline) takeTimeline(state, event, { candidate, timeline: payload.timeline, tool: "", profile: null }, changes);
  },
  "profile.attached"(state, event, payload, changes) {
    takeTimeline(state, event, payload, changes);
    addItem(state, changes, event, "profile", { candidate: numbered(payload.candidate), tool: payload.tool ?? "", timeline: payload.timeline ?? null });
  },
  "artefact.attached"(state, event, payload, changes) {
    addItem(state, changes, event, "artefact", { artefact: payload.artefact ?? null, title: payload.title ?? "" });
  },
  "diagnosis.made"(state, event, payload, changes) {
    addItem(state, changes, event, "diagnosis", { diagnosis: payload });
  },
  "decision.made"(state, event, payload, changes) {
    const earlier = payload.of != null ? state.decisions.get(payload.of) : null;
    if (earlier) {
      tell(state, event, earlier);
      earlier.realised = payload.realised ?? null;
      changes.items.add(earlier.id);
      return;
    }
    const item = addItem(state, changes, event, "decision", { decision: payload, realised: payload.realised ?? null });
    state.decisions.set(event.seq, item);
  },
  "way.changed"(state, event, payload, changes) {
    state.ways.add(payload.way);
    changes.ways = true;
    addItem(state, changes, event, "way", { way: payload });
    if (payload.what === "leads") changes.notices.push(`Branch ${payload.way} takes the lead with candidate ${payload.candidate}.`);
  },
  "budget.updated"(state, _event, payload, changes) {
    state.spent = payload.spent ?? state.spent;
    state.limits = payload.limits ?? state.limits;
    changes.header = true;
  },
  "control.requested"(state, event, payload, changes) {
    state.run.waiting = { pause: "pausing", cancel: "cancelling", resume: "resuming" }[payload.action] ?? state.run.waiting;
    changes.header = true;
    addItem(state, changes, event, "control", { agent: "person", action: payload.action ?? "", by: payload.by ?? "" });
  },
  error(state, event, payload, changes) {
    spend(state, event, changes, { failures: 1 });
    addItem(state, changes, event, "error", { message: payload.message ?? "", where: payload.where ?? "", kept: payload.kept ?? "" });
    changes.notices.push(`Error: ${payload.message ?? ""}`);
  },
};
