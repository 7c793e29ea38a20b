"""What the steps of the compiler's own plan gain by their figures, which of them belong together, and the strategies that suit their rows.

A step that a model planned matches no group of the compiler and is left as it is.
"""

from __future__ import annotations

import re
from typing import Any

from agents.floor import group_of_step
from agents.roles.compiled import Compiled
from agents.strategies.fitting import FLOAT, LONG_ROW
from compiler import Group
from compiler.planning.cost import bound_of, expected_ms, library_ms
from verifier.profiling.diagnosing.structure import REDUCTIONS, SOFTMAXES, ReducedRows, kind_of, row_of

NO_GAIN = 1.1  # ratio of the bytes that the operators move alone to those of the step below which a step of one operator saves nothing
OF_LOOP = re.compile(r"_of_(?:rows|all)(?:_of_\d+)?$")  # ends the names of operators that the capture wrote in place of a loop over groups
ONE_PASS, SPLIT = "one-pass-softmax", "parallel-split"

Step = dict[str, Any]


def gain_ms(compiled: Compiled, group: Group) -> float:
    """Returns the time that a group's kernel is expected to save over its operators one by one, at the library's usual rates and a launch each."""
    apart = max(library_ms(group, compiled.figures, compiled.plan.precision), len(group.kinds) * compiled.figures.launch_us / 1e3)
    return apart - expected_ms(group, compiled.figures, compiled.plan.precision)


def gains_nothing(compiled: Compiled, group: Group) -> bool:
    """Returns whether a group's kernel replaces one launch by another that moves the same bytes and takes no longer than its launch."""
    return len(group.kinds) == 1 and bound_of(group, compiled.figures) == "launch" and group.eager_bytes <= NO_GAIN * group.bytes


def loops_of(compiled: Compiled) -> dict[str, int]:
    """Returns the groups that stand for a loop over groups (experts) of the reference, by id, each with the number of its loop. One of them alone
    cannot replace a part of the loop."""
    found: dict[str, int] = {}
    number, inside = 0, False
    for group in compiled.plan.groups:
        number += inside and not _of_loop(group)
        inside = _of_loop(group)
        if inside:
            found[group.id] = number
    return found


def _of_loop(group: Group) -> bool:
    return any(OF_LOOP.search(name) for name in group.operators)


def fitted(compiled: Compiled, step: Step) -> Step:
    """Returns a step with the group that it consists of and the strategies that suit the group's rows: no running rescale for rows that fit in shared
    memory, and the split of a row over several blocks if there are fewer long rows than multiprocessors."""
    figures, group = compiled.figures, next(iter(group_of_step(compiled, step)), None)
    rows = rows_of(compiled, group) if group is not None and figures.kind == "cuda" else []
    strategies = list(step.get("strategies") or [])
    softmaxes = [row for row in rows if row.kind in SOFTMAXES]
    if softmaxes and all(row.length * FLOAT <= figures.unit_cache_bytes for row in softmaxes):
        strategies = [name for name in strategies if name != ONE_PASS]
    if SPLIT not in strategies and any(row.rows < figures.units and row.length >= LONG_ROW for row in rows):
        strategies.append(SPLIT)
    return {**step, "strategies": strategies, "members": [str(step.get("id"))]}


def rows_of(compiled: Compiled, group: Group) -> list[ReducedRows]:
    """Returns the rows over which a group reduces, as far as they are known."""
    graph = compiled.plan.graph
    if graph is None:
        return []
    shapes = {entry.name: tuple(entry.spec.shape) for entry in graph.inputs if entry.spec is not None}
    shapes |= {node.name: tuple(node.outputs[0].shape) for node in graph.nodes if node.outputs}
    nodes = [node for node in graph.nodes if node.name in group.operators and (kind_of(node) in REDUCTIONS or "batch_norm" in kind_of(node))]
    return [row for node in nodes if (row := row_of(node, shapes)) is not None]
