"""Describes the best correct program to a model that judges or repairs another one: its margin, what it changed, and what it leaves to libraries."""

from __future__ import annotations

from agents.roles import measured
from agents.roles.compiled import Compiled
from agents.roles.names import whole_items
from agents.roles.situation import Attempt, Situation

SPACES = {"own kernel": "in own kernels", "library": "left to the library", "pytorch": "left to PyTorch's operators"}


def best_text(situation: Situation) -> str:
    """Returns the best program's gain, its last change, its margin to the error bound and, if the compiler wrote it, its operators by where they run.
    Returns "" if no program has passed."""
    best = situation.best
    if best is None:
        return ""
    lines = [f"Candidate {best.number}: {measured.verdict_text(best.verdict)}. {best.edit.title}: {whole_items(best.edit.changes)}"]
    if error := measured.error_text(best.verdict):
        lines.append(error)
    lines += [f"{found}." for found in _margins(situation)]
    failed = _failed_trials(situation)
    if failed:
        lines.append(f"It passed what the program above failed ({', '.join(failed)}). Its margin there was not recorded.")
    return "\n".join([*lines, *_spaces(best, situation)])


def _margins(situation: Situation) -> list[str]:
    """Returns the best program's error in each trial that the newest program failed, if the report of the best program contains that error."""
    report, best = situation.attempts[-1].report, situation.best
    if report is None or best is None:
        return []
    known = {trial.name: trial for trial in best.verdict.trials if trial.ok and trial.error is not None and trial.bound}
    failed = [known[trial.name] for trial in report.trials if not trial.ok and trial.name in known]
    return [f"In {t.name!r} its largest error is {t.error:.3g} of a bound of {t.bound:.3g}{f', in {t.output}' if t.output else ''}" for t in failed]


def _failed_trials(situation: Situation) -> list[str]:
    """Returns the trials that the newest program failed and that have no figure in a passing program's report."""
    report = situation.attempts[-1].report
    known = {trial.name for trial in situation.best.verdict.trials} if situation.best is not None else set()
    return [repr(trial.name) for trial in report.trials if not trial.ok and trial.name not in known] if report is not None else []


def _spaces(best: Attempt, situation: Situation) -> list[str]:
    """Returns a line for each place where operators run, in the order of the plan, if the compiler wrote the program."""
    compiled = situation.plan.data if situation.plan is not None else None
    if best.edit.options is None or not isinstance(compiled, Compiled):
        return []
    places: dict[str, list[str]] = {}
    for group in compiled.plan.groups:
        places.setdefault(group.space, []).append(f"{group.id} {group.title}")
    return [f"- {SPACES.get(space, space)}: {whole_items('; '.join(named), separator='; ')}" for space, named in places.items()]
