"""The built-in Coder, which uses the compiler to generate programs. A move changes its options; a repair leaves suspicious groups to PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from agents.floor import size
from agents.plan_edits import first_options
from agents.roles.compiled import Compiled
from agents.roles.compiled_ideas import NUMBER, realised
from agents.roles.planner import MAX_STEPS
from agents.roles.situation import Advice, Attempt, Edit, Idea, Knob, Situation
from agents.roles.verifier import sentence
from agents.span import Span
from agents.strategies import combined
from compiler import Options, print_program
from compiler.planning.cost import launch_bound, times
from compiler.planning.knobs import Number, numbers, with_numbers
from compiler.planning.tuned import fingerprints, with_tuned
from verifier.report import Report

LEAVE = "leave-to-library"
GRAPH = "cuda-graph"


class BuiltInCoder:
    name = "built-in"

    async def write(self, span: Span, situation: Situation, parent: Attempt | None, advice: Advice | None) -> Edit | None:
        compiled: Compiled = situation.planned.data
        if parent is None or advice is None or parent.edit.options is None:  # no options: a model wrote the program before a fork
            options = first_options(compiled, situation.planned.payload)
            first = [*first_words(compiled)]
            if launch_bound(compiled.plan) and not situation.orders.refuses(GRAPH) and not options.on(GRAPH):
                options = options.with_strategy(GRAPH)
                first.append(f"Its {len(compiled.plan.groups)} groups are shorter than their launches, so these are recorded as a CUDA graph.\n")
            if situation.tuned:
                kernels = fingerprints(compiled.plan, situation.task_source, options)
                options = with_tuned(options, kernels, situation.tuned)
                first.append(
                    f"Numbers of {len(options.group_knobs)} group(s) are those that earlier runs on this device found for the same kernels.\n"
                )
            return self._print(compiled, situation, options, "The first program", first_change(compiled), tuple(first))
        if advice.route == "repair":
            if parent.report is not None and parent.report.status == "inconclusive":
                changes = f"nothing: candidate {parent.number} could not be measured, so it is tried again"
                return replace(parent.edit, title="The same program once more", changes=changes, says=())
            return self._repair(compiled, situation, parent)
        move = advice.move
        if move is None:
            return None
        where = f" in {move.group}" if move.group else ""
        changes = f"{move.strategy}{where}: {move.expectation}"
        says = (f"On top of candidate {parent.number}: {move.strategy}{where}. ", f"{sentence(move.why)}\n", f"Expected: {move.expectation}.")
        return self._print(compiled, situation, move.options, f"{move.strategy}{where}", changes, says, move.strategy, move.group)

    async def realise(self, span: Span, situation: Situation, idea: Idea, parent: Attempt | None) -> Edit | None:
        compiled: Compiled = situation.planned.data
        base = parent.edit.options if parent is not None and parent.edit.options is not None else Options()
        if any(situation.orders.refuses(name) for name in idea.strategies):
            return None  # the note was written after the idea
        strategy = combined(idea.strategies)
        says = (f"Idea {idea.number}{f' on candidate {parent.number}' if parent else ''}: {idea.text}",)
        edit = self._print(compiled, situation, realised(idea, base), idea.title, idea.text, says, strategy)
        if any(edit.source == attempt.edit.source for attempt in situation.attempts):
            return None  # the request changes nothing
        return replace(edit, idea=idea)

    def knobs(self, situation: Situation, attempt: Attempt) -> list[Knob]:
        return [Knob(n.name, n.values, n.value) for n in numbers_of(situation, attempt)]

    async def tune(self, span: Span, situation: Situation, attempt: Attempt, values: Mapping[str, int]) -> Edit | None:
        compiled: Compiled = situation.planned.data
        if attempt.edit.options is None or situation.orders.refuses(NUMBER):
            return None
        known = {n.name: n for n in numbers_of(situation, attempt)}
        options = with_numbers(attempt.edit.options, list(known.values()), dict(values))
        if options is None:
            return None
        changed = [f"{name} {value} instead of {known[name].value}" for name, value in values.items() if value != known[name].value]
        title = ", ".join(f"{name} = {value}" for name, value in values.items() if value != known[name].value) or "the same numbers"
        changes = f"candidate {attempt.number} with {', '.join(changed) or 'the same numbers'}"
        step = next(iter(values), "").partition(".")[0]
        return self._print(compiled, situation, options, title, changes[:1000], (f"{changes[0].upper()}{changes[1:]}.",), NUMBER, step[:60])

    def _repair(self, compiled: Compiled, situation: Situation, failed: Attempt) -> Edit | None:
        options: Options = failed.edit.options
        own = [group.id for group in compiled.own_groups if not left_out(options, group.id)]
        if not own:
            return None
        repairs = sum(attempt.edit.strategy == LEAVE for attempt in situation.attempts)
        dropped = suspects(compiled, own, failed.report)[: 2**repairs]
        for group in dropped:
            options = without(options, group)
        names = ", ".join(dropped)
        changes = f"{names} left to PyTorch, since candidate {failed.number} did not pass"
        why = failed.report.message if failed.report else ""
        says = (f"Candidate {failed.number} did not pass. {why}\n", f"Leaving {names} to PyTorch and keeping the rest.")
        return self._print(compiled, situation, options, f"Without {names}", changes, says, LEAVE, names[:60])

    @staticmethod
    def _print(
        compiled: Compiled,
        situation: Situation,
        options: Options,
        title: str,
        changes: str,
        says: tuple[str, ...],
        strategy: str = "",
        step: str = "",
    ) -> Edit:
        source = print_program(compiled.plan, situation.task_source, options)
        return Edit(source, title[:200], changes, says, strategy, step, options)


def numbers_of(situation: Situation, attempt: Attempt) -> list[Number]:
    """Returns the tunable numbers of a measured program, but only for kernels that are worth tuning."""
    plan, options, report = situation.planned.data.plan, attempt.edit.options, attempt.report
    if options is None:
        return []
    if report is None or report.timing is None:
        return numbers(plan, situation.task_source, options)
    return numbers(plan, situation.task_source, options, times(plan, options, report, attempt.profile, attempt.edit.source), report.timing.program_ms)


def without(options: Options, group: str) -> Options:
    """Returns the same program with one group left to PyTorch."""
    return options.with_strategy(LEAVE, group)


def left_out(options: Options, group: str) -> bool:
    return options.on(LEAVE, group)


def suspects(compiled: Compiled, groups: list[str], report: Report | None) -> list[str]:
    """Returns the suspicious groups: first those that a report names, then those with the most operators, which are the most likely to contain
    errors."""
    text = report.model_dump_json(include={"message", "problems", "stages", "trials", "build"}) if report else ""
    operators = {group.id: len(group.operators) for group in compiled.plan.groups}
    return sorted(groups, key=lambda g: (g not in text, -operators[g], g))


def first_change(compiled: Compiled) -> str:
    own = compiled.own_groups
    if not own:
        return f"the model as it is: {compiled.plan.why_none}"[:1000]
    return f"{len(own)} group{'s' if len(own) != 1 else ''} in own kernels: {', '.join(group.title for group in own)}"[:1000]


def first_words(compiled: Compiled) -> Iterator[str]:
    own = compiled.own_groups
    if not own:
        yield f"{compiled.left} The program is the model itself, measured as it is."
        return
    yield f"Wrote {len(own)} group{'s' if len(own) != 1 else ''} as own kernels.\n"
    for group in own[:MAX_STEPS]:
        count = len(group.operators)
        fused = f"{count} operators in one kernel" if count > 1 else "one operator"
        less = f" instead of {size(group.eager_bytes)} operator by operator" if group.eager_bytes > 1.1 * group.bytes else ""
        yield f"- {group.id}, {group.title}: {fused}, {size(group.bytes)} read and written{less}.\n"
    if len(own) > MAX_STEPS:
        yield f"- and {len(own) - MAX_STEPS} more.\n"
    if compiled.left:
        yield f"{compiled.left}\n"
