"""Says when the wrong elements of a tensor are whole rows, and which choices of the task may explain that."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from agents.roles.compiled import Compiled
from agents.roles.situation import Attempt, Situation
from compiler import Options
from verifier.graph import ROUTED, Graph, Node
from verifier.profiling.diagnosing.structure import inputs_of, kind_of
from verifier.report import WrongTensor

WHOLE = "(all elements there)"  # as `verifier.correctness.wrong_parts` words it
NAMED = re.compile(r"dimension (\d+): ([^;(]+)")
FEW = 0.05  # largest share of the rows that choices between nearly equal values explain; more have another cause
PICKS = frozenset(["topk", "sort", "argsort", "argmax", "argmin", "kthvalue", "median", "mode", "searchsorted", "bucketize", "unique", "multinomial"])
COMPARES = frozenset(["gt", "ge", "lt", "le", "greater", "greater_equal", "less", "less_equal"])
SELECTS = frozenset(["where", "masked_fill", "index", "nonzero", "masked_select", "index_put", "logical_and", "logical_or"])
PASSES_ON = frozenset(
    ["getitem", "view", "reshape", "_to_copy", "slice", "squeeze", "unsqueeze", "permute", "transpose", "clone", "expand", "flatten"]
)


def whole_rows(part: WrongTensor, shape: Sequence[int] | None = None) -> tuple[int, int, int] | None:
    """Returns the number of wrong rows, their length and the number of all rows if the wrong elements are as many as those of whole rows. `shape` is
    the tensor's, if known. Returns None if they are not, or if that cannot be told from their pattern."""
    named, rank = {int(at): text.strip() for at, text in NAMED.findall(part.where)}, len(part.first)
    if rank < 2 or rank - 1 in named or part.wrong == part.elements:
        return None
    if shape is not None and len(shape) == rank and math.prod(shape) == part.elements:
        length = shape[-1]
    elif WHOLE in part.where and sorted(named) == list(range(len(named))):
        length = part.wrong // math.prod(_count(text) for text in named.values())
    else:
        return None
    if length < 2 or part.wrong % length or part.elements % length:
        return None
    return part.wrong // length, length, part.elements // length


def _count(text: str) -> int:
    """Returns how many indices a pattern of `verifier.correctness.wrong_parts` names along a dimension."""
    if found := re.match(r"the last ([\d,]+) of", text):
        return int(found[1].replace(",", ""))
    if found := re.match(r"([\d,]+) to ([\d,]+) of [\d,]+$", text):
        return int(found[2].replace(",", "")) - int(found[1].replace(",", "")) + 1
    if found := re.match(r"([\d,]+) of [\d,]+, between", text):
        return int(found[1].replace(",", ""))
    return len(text.partition(" of ")[0].split(", "))


def rows_text(part: WrongTensor, shape: Sequence[int] | None = None) -> str:
    found = whole_rows(part, shape)
    if found is None:
        return ""
    wrong, length, rows = found
    which = "all elements of" if WHOLE in part.where else "as many as all elements of"
    return f"{which} {wrong:,} row{'s' if wrong != 1 else ''} of {length:,} (of {rows:,} rows)"


def shape_of(part: WrongTensor, situation: Situation) -> tuple[int, ...] | None:
    """Returns the shape of a wrong output as the task was admitted with, or None if it is not an output whose place is known."""
    outputs = situation.admission.outputs if situation.admission is not None else []
    place = re.fullmatch(r"out(?:\[(\d+)\])?", part.name)
    at = int(place[1] or 0) if place is not None else len(outputs)
    return tuple(outputs[at].shape) if at < len(outputs) else None


def choices(graph: Graph | None) -> list[Node]:
    """Returns the operators that choose by comparing values: rankings, and comparisons of floating-point values that select something."""
    if graph is None:
        return []
    kinds = {entry.name: entry.spec.dtype for entry in graph.inputs if entry.spec is not None}
    kinds |= {node.name: node.outputs[0].dtype for node in graph.nodes if node.outputs}
    selecting = {name for node in graph.nodes if kind_of(node) in SELECTS for name in inputs_of(node)}
    return [
        node
        for node in graph.nodes
        if kind_of(node) in PICKS
        or (kind_of(node) in COMPARES and node.name in selecting and any("float" in kinds.get(name, "") for name in inputs_of(node)[:1]))
    ]


def choice_text(part: WrongTensor, attempt: Attempt, situation: Situation) -> str:
    """Explains a few wrong rows by choices of the task that may have been made differently, and says what helps. Returns "" if the wrong
    elements are no few whole rows, or if the task makes no choices."""
    graph = situation.capture.graph if situation.capture is not None else None
    found, made = whole_rows(part, shape_of(part, situation)), choices(graph)
    if found is None or not made or graph is None or found[0] > max(1, FEW * found[2]):
        return ""
    routed = any(node.op == ROUTED for node in graph.nodes)
    names = [*dict.fromkeys(kind_of(node) for node in made), *(["routing"] if routed else [])]
    one = "one choice may have been made" if found[0] == 1 else "some choices may have been made"
    ranked = _ranked(made, graph, attempt, situation)
    return (
        f"The task chooses ({', '.join(names)}), so {one} differently between nearly equal values. Compute the values that are ranked or compared in "
        "the reference's order and precision, or leave them to PyTorch's operators"
        f"{f'. That program computed them itself: {ranked}' if ranked else ''}"
    )


def _ranked(made: Sequence[Node], graph: Graph, attempt: Attempt, situation: Situation) -> str:
    """Returns the groups whose own kernels computed the ranked values, if the compiler wrote the program."""
    compiled = situation.plan.data if situation.plan is not None else None
    if not isinstance(compiled, Compiled) or not isinstance(attempt.edit.options, Options):
        return ""
    nodes = {node.name: node for node in graph.nodes}
    owner = {name: group for group in compiled.plan.groups for name in group.operators}
    found: list[str] = []
    for choice in made:
        name = next(iter(inputs_of(choice)), "")
        while name in nodes and kind_of(nodes[name]) in PASSES_ON and inputs_of(nodes[name]):
            name = inputs_of(nodes[name])[0]
        group = owner.get(name)
        if group is not None and group.space == "own kernel":
            found.append(f"{group.id} {group.title}")
    return ", ".join(dict.fromkeys(found))
