"""Memory within a run: the errors that occurred, the methods that were tried and their results, and the best program of each line of descent.

It is a pure function of the situation and therefore needs no journal. Digests are deliberately short, because a model that sees everything tends to
repeat earlier attempts (KernelMem separates attempts from repairs for the same reason; the reflexion lists come from AutoKernel and KernelAgent).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agents.memory.fingerprints import fingerprint
from agents.memory.lessons import lesson_of
from agents.roles.situation import Attempt, Situation
from agents.strategies import combined, named_in

GAIN = 1.02  # required gain over the parent; anything smaller is within the noise of a quick verification
LOSS = 0.98
SHOWN = 8  # maximum number of lines of each kind in a digest
UNMEASURED = "could not be measured"
BROKEN = {
    "wrong_result": "wrong result",
    "build_failed": "did not build",
    "crashed": "crashed",
    "timed_out": "timed out",
    "rejected": "rejected by the integrity checks",
    "inconclusive": UNMEASURED,
    "infrastructure_error": UNMEASURED,
}


@dataclass(frozen=True)
class Failure:
    """An error with all its occurrences."""

    fingerprint: str
    status: str
    sample: str  # what its first occurrence teaches
    candidates: tuple[int, ...]  # candidates in which it occurred
    fixed_by: int | None = None  # the first later candidate that descends from one of them and passed


@dataclass(frozen=True)
class Try:
    """A method applied in one place, with its result. Several attempts count as a single try, represented by the best attempt."""

    strategy: str
    where: str  # a step of the plan, or "" for the whole program
    operators: tuple[str, ...]
    candidates: tuple[int, ...]
    outcome: str  # "gained", "no gain", "slower", or one of BROKEN's words
    expected: float | None = None  # speedup over the parent
    realised: float | None = None  # measured speedup; None if no attempt passed
    over: str = ""  # baseline of the gain if it is not the parent program; "eager" for a first program

    @property
    def failed(self) -> bool:
        return self.outcome not in ("gained", UNMEASURED)


@dataclass(frozen=True)
class Lineage:
    """The best correct program among all descendants of one first program."""

    root: int
    best: int
    score: float  # score used to rank the lines of descent
    ratio: float  # speedup over eager, from the program's own measurement, and its lower bound
    low: float
    strategies: tuple[str, ...]  # strategies on the path from the first program to the best one
    programs: int  # all descendants, including the first program


@dataclass(frozen=True)
class Memory:
    failures: tuple[Failure, ...] = ()
    tries: tuple[Try, ...] = ()
    lineages: tuple[Lineage, ...] = ()  # best first

    @classmethod
    def of(cls, situation: Situation) -> Memory:
        attempts = {attempt.number: attempt for attempt in situation.attempts}
        return cls(_failures(attempts, situation), _tries(attempts, situation), _lineages(attempts))

    def failed(self, strategy: str, where: str = "") -> Try | None:
        """Returns the previous try of this method in this place if it did not pay off, and None otherwise."""
        return next((t for t in self.tries if t.strategy == strategy and t.where == where and t.failed), None)

    def known(self, status: str, message: str) -> Failure | None:
        """Returns an earlier failure of the same kind and with the same error."""
        mark = fingerprint(message)
        return next((f for f in self.failures if (f.status, f.fingerprint) == (status, mark)), None)

    def digest(self, role: str = "", shown: int | None = None) -> str:
        """Returns Markdown lists for a prompt, each with at most SHOWN lines, or "" if there is nothing to report. An error that occurred only in
        candidate `shown` is left out, because the prompt already shows it.

        A planner gets lines of descent and methods, a coder gets errors and the best program, and a verifier gets methods and errors. "errors" gets
        errors alone, and "" everything.
        """
        parts = {
            "planner": (self._lines(), self._methods()),
            "coder": (self._errors(shown), self._lines()),
            "errors": (self._errors(shown),),
            "verifier": (self._methods(), self._errors(shown)),
        }.get(role, (self._lines(), self._methods(), self._errors(shown)))
        return "\n\n".join(part for part in parts if part)

    def _lines(self) -> str:
        if len(self.lineages) == 1 and self.lineages[0].programs == 1:
            return ""  # the request already shows this program with its measurements
        return _section("Best program of each line so far:", list(map(_said_of_line, self.lineages)))

    def _methods(self) -> str:
        return _section("Methods tried, with their results (do not repeat a failed one unchanged):", [
            _said_of(t) for t in sorted(self.tries, key=lambda t: (not t.failed, -t.candidates[-1]))
        ])  # fmt: skip

    def _errors(self, shown: int | None) -> str:
        newest = sorted((f for f in self.failures if f.candidates != (shown,)), key=lambda f: (f.fixed_by is not None, -f.candidates[-1]))
        return _section("Errors seen so far, each once:", [_said_of_failure(f) for f in newest])


def realised(attempt: Attempt) -> float | None:
    """Returns the speedup over the nearest ancestor that passed, with the two timed alternately, or over eager if there is no such ancestor. Returns
    None if the attempt did not pass or was not timed together with that ancestor."""
    if not attempt.passed:
        return None
    if attempt.base is None:
        return attempt.speedup.ratio
    return attempt.gain.ratio if attempt.gain is not None else None


def ancestors(attempt: Attempt, attempts: dict[int, Attempt]) -> list[Attempt]:
    """Returns the attempt and its ancestors, starting with the attempt."""
    line, seen = [], set()
    current: Attempt | None = attempt
    while current is not None and current.number not in seen:
        line.append(current)
        seen.add(current.number)
        current = attempts.get(current.parent) if current.parent is not None else None
    return line


def _failures(attempts: dict[int, Attempt], situation: Situation) -> tuple[Failure, ...]:
    found: dict[tuple[str, str], list[Attempt]] = {}
    for attempt in attempts.values():
        if attempt.report is not None and attempt.report.status not in ("passed", "inconclusive", "infrastructure_error"):
            found.setdefault((attempt.report.status, fingerprint(message_of(attempt))), []).append(attempt)
    passed = [a for a in attempts.values() if a.passed]
    failures = []
    for (status, mark), which in found.items():
        numbers = tuple(a.number for a in which)
        fixed = next((p.number for p in passed if any(a.number in numbers for a in ancestors(p, attempts)[1:])), None)
        failures.append(Failure(mark, status, lesson_of(which[0], message_of(which[0]), situation), numbers, fixed))
    return tuple(failures)


def message_of(attempt: Attempt) -> str:
    """Returns a description of what went wrong: the verdict's message and the source locations."""
    report = attempt.report
    if report is None:
        return ""
    return "\n".join([report.message, *(problem.message for problem in report.problems)]).strip()


def _tries(attempts: dict[int, Attempt], situation: Situation) -> tuple[Try, ...]:
    operators = operators_of_steps(situation.plan.payload if situation.plan else {})
    grouped: dict[tuple[str, str], list[Attempt]] = {}
    for attempt in attempts.values():
        if attempt.edit.strategy and attempt.report is not None:
            grouped.setdefault((attempt.edit.strategy, attempt.edit.step), []).append(attempt)
    tries = []
    for (strategy, where), which in grouped.items():
        gains = [gain for a in which if (gain := realised(a)) is not None]
        best = max(gains, default=None)
        expected = next((a.expected for a in reversed(which) if a.expected is not None), None)
        outcome = _outcome(best) if best is not None else BROKEN.get(which[-1].verdict.status, UNMEASURED)
        first = "eager" if all(a.base is None for a in which) else ""
        tries.append(Try(strategy, where, operators.get(where, ()), tuple(a.number for a in which), outcome, expected, best, first))
    return tuple(tries)


def _outcome(gain: float) -> str:
    return "gained" if gain >= GAIN else "slower" if gain < LOSS else "no gain"


def operators_of_steps(plan: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """Returns the operators covered by each step of a plan's payload."""
    return {str(step.get("id", "")): tuple(map(str, step.get("operators") or ())) for step in plan.get("steps") or []}


def _lineages(attempts: dict[int, Attempt]) -> tuple[Lineage, ...]:
    lines: dict[int, list[Attempt]] = {}
    for attempt in attempts.values():
        lines.setdefault(ancestors(attempt, attempts)[-1].number, []).append(attempt)
    found = []
    for root, members in lines.items():
        best = max((a for a in members if a.passed), key=lambda a: a.score, default=None)
        if best is not None:
            speedup = best.speedup
            line = reversed(ancestors(best, attempts))
            methods = [name for a in line if (name := a.edit.strategy or (combined(named_in(a.edit.source)) if a.base is None else ""))]
            found.append(Lineage(root, best.number, best.score, speedup.ratio, speedup.low, tuple(dict.fromkeys(methods)), len(members)))
    return tuple(sorted(found, key=lambda line: -line.score))


def _section(title: str, lines: list[str]) -> str:
    if not lines:
        return ""
    more = [f"- and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
    return "\n".join([title, *lines[:SHOWN], *more])


def _said_of_line(line: Lineage) -> str:
    methods = ", then ".join(line.strategies) or "no named method"
    count = f"{line.programs} program{'s' if line.programs != 1 else ''} in this line"
    return f"- candidate {line.best}: {line.ratio:.2f}x over eager (at least {line.low:.2f}x), by {methods}; {count}"


def _said_of(t: Try) -> str:
    place = f" at {t.where}" if t.where else ""
    over = f" ({', '.join(t.operators[:4])}{', ...' if len(t.operators) > 4 else ''})" if t.operators else ""
    brought = f", {t.realised:.2f}x{f' over {t.over}' if t.over else ''}" if t.realised is not None else ""
    hoped = f" where {t.expected:.2f}x was expected" if t.expected is not None else ""
    return f"- {t.strategy}{place}{over}: {t.outcome}{brought}{hoped}"


def _said_of_failure(f: Failure) -> str:
    times = f"{len(f.candidates)} times, " if len(f.candidates) > 1 else ""
    after = f"; candidate {f.fixed_by} no longer has it" if f.fixed_by is not None else ""
    shown = " ".join(f.sample.split())
    return f"- {BROKEN.get(f.status, f.status)} ({times}last in candidate {f.candidates[-1]}{after}): {shown}"
