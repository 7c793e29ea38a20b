"""Describes the best correct program to a model that judges or repairs another one: its margin, what it changed, what it leaves to libraries, and how
it computes the state entries that the other one got wrong."""

from __future__ import annotations

import math
from collections.abc import Mapping

from agents.roles import measured
from agents.roles.compiled import Compiled
from agents.roles.edits import folded
from agents.roles.names import whole_items
from agents.roles.prompts import fenced
from agents.roles.shortening import kernel_text
from agents.roles.situation import Attempt, Situation
from compiler import Group, Options
from compiler.planning.cost import groups_of_kernels
from verifier.graph import Graph, Node
from verifier.profiling.diagnosing.defects import STATE
from verifier.profiling.diagnosing.structure import inputs_of
from verifier.profiling.own_kernels import base_name
from verifier.report import Report

SHOWN_WRITERS, LEADING = 2, 7  # groups that write a wrong state entry, and groups that lead to one of them, that are told
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
    return "\n".join([*lines, *_spaces(best, situation), *writers(best, situation)])


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


def writers(best: Attempt, situation: Situation) -> list[str]:
    """Returns, for each state entry that is off in the newest program, the group of a program by the compiler that writes it, the groups that lead to
    it, nearest first, and the code of its kernel."""
    compiled = situation.plan.data if situation.plan is not None else None
    graph = situation.capture.graph if situation.capture is not None else None
    options, newest = best.edit.options, situation.attempts[-1].report
    if not isinstance(compiled, Compiled) or not isinstance(options, Options) or graph is None or newest is None:
        return []
    owner = {name: group for group in compiled.plan.groups for name in group.operators}
    kernels = groups_of_kernels(compiled.plan, options, best.verdict, best.profile, best.edit.source)
    entries: dict[str, list[str]] = {}
    for entry in _wrong_entries(newest, graph):
        if (group := owner.get(graph.mutations[entry])) is not None:
            entries.setdefault(group.id, []).append(entry)
    found = []
    for group in [group for group in compiled.plan.groups if group.id in entries][:SHOWN_WRITERS]:
        leading = ", ".join(f"{one.id} {one.title}" for one in _leading(group, owner, graph))
        said = f"{', '.join(entries[group.id])}: written by {group.id} {group.title}{f', which follows {leading}' if leading else ''}"
        name = next((base_name(kernel) for kernel, groups in kernels.items() if any(one.id == group.id for one in groups)), "")
        code = kernel_text(folded(best.edit.source), name) if name else ""
        found.append(f"- {said}" + (f". Its kernel there:\n\n{fenced(code, 'cuda')}" if code else ""))
    return found


def _wrong_entries(report: Report, graph: Graph) -> list[str]:
    """Returns the state entries that a failed trial names."""
    named = [part.name for trial in report.trials if not trial.ok for part in trial.wrong]
    named += [trial.detail.split(f" {STATE}")[0] for trial in report.trials if not trial.ok and STATE in trial.detail]
    return [name for name in dict.fromkeys(named) if name in graph.mutations]


def _leading(group: Group, owner: Mapping[str, Group], graph: Graph) -> list[Group]:
    """Returns the groups on whose results a group depends, nearest first, each by its largest input, as far as `LEADING` groups back."""
    nodes = {node.name: node for node in graph.nodes}
    found: list[Group] = []
    current: Group | None = group
    while current is not None and len(found) < LEADING:
        reads = [name for mine in current.operators if mine in nodes for name in inputs_of(nodes[mine])]
        before = [name for name in dict.fromkeys(reads) if name in owner and owner[name].id not in {current.id, *(one.id for one in found)}]
        largest = max(before, key=lambda name: _elements(nodes[name]), default=None)
        current = owner[largest] if largest is not None else None
        found += [current] if current is not None else []
    return found


def _elements(node: Node) -> int:
    return math.prod(node.outputs[0].shape) if node.outputs else 0


def _spaces(best: Attempt, situation: Situation) -> list[str]:
    """Returns a line for each place where operators run, in the order of the plan, if the compiler wrote the program."""
    compiled = situation.plan.data if situation.plan is not None else None
    if best.edit.options is None or not isinstance(compiled, Compiled):
        return []
    places: dict[str, list[str]] = {}
    for group in compiled.plan.groups:
        places.setdefault(group.space, []).append(f"{group.id} {group.title}")
    return [f"- {SPACES.get(space, space)}: {whole_items('; '.join(named), separator='; ')}" for space, named in places.items()]
