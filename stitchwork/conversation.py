"""Prints a run's events as lines for a terminal: who said what, and which programs were tried and with what result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stitchwork.figures import interval, milliseconds, seconds
from stitchwork.terminal import Terminal, clean

Event = dict[str, Any]
Payload = dict[str, Any]

NAMES = {"planner": "Planner", "coder": "Coder", "verifier": "Verifier", "engine": "Engine", "person": "Person", "": "Engine"}
COLOURS = {"planner": "blue", "coder": "cyan", "verifier": "yellow", "person": "bold"}
LONGEST = 40  # maximum number of lines of a message; the page shows all of it
SIGNS = {
    "passed": ("✓", "green"),
    "improved": ("✓", "green"),
    "matched": ("=", "yellow"),
    "cancelled": ("–", "yellow"),
    "out_of_budget": ("–", "yellow"),
}


class Conversation:
    """Prints events as they arrive. `outcome` is set after the last one."""

    def __init__(self, terminal: Terminal):
        self.terminal = terminal
        self.outcome: str | None = None
        self.paused = ""
        self._texts: dict[str, str] = {}  # text streamed so far, keyed by message

    def show(self, event: Event) -> None:
        handler = HANDLERS.get(event["kind"])
        if handler is not None:
            handler(self, event, event["payload"])

    def _say(self, event: Event, text: str, *styles: str) -> None:
        agent = event["agent"]
        name = self.terminal.paint(f"{NAMES.get(agent, agent):<9}", COLOURS.get(agent, "dim"))
        first, *rest = clean(text).splitlines() or [""]
        self.terminal.line(f"{name} {self.terminal.paint(first, *styles)}")
        for line in rest:
            self.terminal.line(f"{'':<9} {self.terminal.paint(line, *styles)}")

    def _started(self, event: Event, p: Payload) -> None:
        task = p.get("task", {}).get("name", "")
        self.terminal.line(self.terminal.paint(f"{clean(task)} · {p.get('workflow')} · {p.get('device')} · {p.get('precision')}", "bold"))

    def _opened(self, event: Event, p: Payload) -> None:
        depth = event["span"].count("/")
        self.terminal.line(f"{'  ' * depth}{self.terminal.paint('▸ ' + clean(p.get('title', event['span'])), 'bold')}")

    def _closed(self, event: Event, p: Payload) -> None:
        if p.get("status") == "failed":
            told = clean(p.get("summary", ""))[:300]
            self.terminal.line(f"{'  ' * event['span'].count('/')}{self.terminal.paint('✕', 'red')} {told}")

    def _delta(self, event: Event, p: Payload) -> None:
        kept = self._texts.get(p["message"], "")[: p["offset"]]
        self._texts[p["message"]] = kept + p["text"]
        self.terminal.status(f"{NAMES.get(event['agent'], '')} is writing … {len(self._texts[p['message']]):,} characters")

    def _message(self, event: Event, p: Payload) -> None:
        text = p.get("text") or self._texts.pop(p["message"], "")
        self._texts.pop(p["message"], None)
        self._whole(event, text or "(a long message: see the page, or the artefacts)")

    def _replied(self, event: Event, p: Payload) -> None:
        text = self._texts.pop(p["key"], "")
        if text:
            self._whole(event, text)
        usage = p.get("usage") or {}
        tokens = f", {usage['input_tokens']:,} tokens in, {usage['output_tokens']:,} out" if usage.get("input_tokens") is not None else ""
        cost = f", ${p['dollars']:.4f}" if p.get("dollars") is not None else ""
        self.terminal.line(self.terminal.paint(f"{'':<9} {clean(p.get('model') or p['profile'])}, {seconds(p.get('seconds'))}{tokens}{cost}", "dim"))

    def _whole(self, event: Event, text: str) -> None:
        lines = text.strip().splitlines()
        shown = lines if len(lines) <= LONGEST else [*lines[:LONGEST], f"… {len(lines) - LONGEST} lines more on the page"]
        self._say(event, "\n".join(shown))

    def _failed_call(self, event: Event, p: Payload) -> None:
        self._say(event, f"the model {p.get('profile', '')} did not answer: {p.get('message', '')} {p.get('hint', '')}", "red")

    def _plan(self, event: Event, p: Payload) -> None:
        lines = [f"Plan: {p.get('summary', '')}", *(f"  {i}. {step['title']} ({step['space']})" for i, step in enumerate(p.get("steps", []), 1))]
        self._say(event, "\n".join(lines))

    def _tree(self, event: Event, p: Payload) -> None:
        titles = {"edited": "tree edited", "chosen": "next", "learned": "learned"}
        left = [f"  left out: {sentence}" for sentence in p.get("left_out", [])]
        self._say(event, "\n".join([f"{titles.get(p.get('what', ''), 'tree')}: {p.get('reason', '')}", *left]))

    def _candidate(self, event: Event, p: Payload) -> None:
        parent = f" from {p['parent']}" if p.get("parent") else ""
        self._say(event, f"candidate {p['candidate']}{parent}: {p.get('changes') or p.get('title', '')}")

    def _stage(self, event: Event, p: Payload) -> None:
        if p.get("status") == "started":
            self.terminal.status(f"verifier: {p.get('stage')} …")

    def _verified(self, event: Event, p: Payload) -> None:
        if p.get("job") != "verify" or p.get("candidate") is None:  # a comparison of two programs, whose result is given in a message
            return
        status = p.get("status") or "no verdict"
        sign, colour = SIGNS.get(status, ("✕", "red"))
        told = f"{sign} candidate {p.get('candidate')}: {status.replace('_', ' ')}"
        if p.get("speedup"):
            told += f", {interval(p['speedup'])} vs eager ({p.get('tier')})"
            baseline, best = p.get("best_baseline"), p.get("best_baseline_speedup")
            told += f", {interval(best)} vs {baseline}" if baseline not in (None, "eager") and isinstance(best, dict) else ""
            told += f", {milliseconds(p.get('program_ms'))}, {p['program_class']}" if p.get("program_class") else ""
        elif p.get("message"):
            told += f": {clean(p['message'])[:400]}"
        self._say(event, told, colour)

    def _diagnosis(self, event: Event, p: Payload) -> None:
        self._say(event, f"diagnosis: {p.get('bottleneck', '')}. {p.get('text', '')}")

    def _decision(self, event: Event, p: Payload) -> None:
        if p.get("of") is None:
            method = f" with {p['method']}" if p.get("method") else ""
            self._say(event, f"→ {p.get('route')}{method}: {p.get('reason', '')}")

    def _way(self, event: Event, p: Payload) -> None:
        program = f" (candidate {p['candidate']})" if p.get("candidate") is not None else ""
        self._say(event, f"way {p.get('way')} {p.get('what', '')}{program}: {p.get('reason', '')}")

    def _note(self, event: Event, p: Payload) -> None:
        self._say(event, f"note to {p.get('to', 'all')} by {p.get('by', 'somebody')}: {p.get('text', '')}")

    def _paused(self, event: Event, p: Payload) -> None:
        self.paused = clean(f"{p.get('reason', '')} {p.get('hint', '')}").strip()
        self._say(event, f"paused: {self.paused}", "yellow")

    def _resumed(self, event: Event, p: Payload) -> None:
        self.paused = ""
        self._say(event, f"continues: {p.get('reason', '')}")

    def _error(self, event: Event, p: Payload) -> None:
        self._say(event, f"error: {p.get('message', '')} ({p.get('where', '')}; kept: {p.get('kept', '')})", "red")

    def _finished(self, event: Event, p: Payload) -> None:
        self.outcome = p["outcome"]
        sign, colour = SIGNS.get(p["outcome"], ("✕", "red"))
        best = f", candidate {p['best']}: {interval(p.get('speedup'))} vs eager" if p.get("best") else ""
        self.terminal.line(self.terminal.paint(f"{sign} {p['outcome'].replace('_', ' ')}{best}", "bold", colour))
        self.terminal.line(clean(p.get("reason", "")))


HANDLERS: dict[str, Callable[[Conversation, Event, Payload], None]] = {
    "run.started": Conversation._started,
    "run.paused": Conversation._paused,
    "run.resumed": Conversation._resumed,
    "run.finished": Conversation._finished,
    "span.opened": Conversation._opened,
    "span.closed": Conversation._closed,
    "message.delta": Conversation._delta,
    "message.completed": Conversation._message,
    "llm.completed": Conversation._replied,
    "llm.failed": Conversation._failed_call,
    "plan.proposed": Conversation._plan,
    "plan.edited": Conversation._plan,
    "tree.changed": Conversation._tree,
    "candidate.proposed": Conversation._candidate,
    "verification.stage": Conversation._stage,
    "verification.finished": Conversation._verified,
    "diagnosis.made": Conversation._diagnosis,
    "decision.made": Conversation._decision,
    "way.changed": Conversation._way,
    "note.added": Conversation._note,
    "error": Conversation._error,
}
