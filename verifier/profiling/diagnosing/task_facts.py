"""Facts about a task, from its captured graph, that hold for every program: minimum bytes and operations, branches, work by kind.

A diagnosis compares what a program did with what the task requires. The facts describe the task, never a program's source.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from pydantic import BaseModel

from verifier.graph import Capture, Graph, Node
from verifier.profiling.diagnosing.structure import (
    CHOICES,
    EXPONENTIALS,
    MOVES,
    PRODUCTS,
    RECURRENT,
    REDUCTIONS,
    Structure,
    inputs_of,
    kind_of,
    structure_of,
    unrolled_loop,
)

# fmt: off
_SPECIAL = frozenset([
    "exp", "log", "log1p", "expm1", "sin", "cos", "tan", "tanh", "atan", "asin", "acos", "erf", "sigmoid", "gelu", "silu", "mish", "softplus",
    "pow", "elu", "softmax", "_softmax", "log_softmax", "_log_softmax", "logsumexp", "log_sigmoid_forward", "log_sigmoid",
])
# fmt: on


class TaskFacts(BaseModel):
    bytes_min: int | None = None  # inputs and weights read once, outputs written once
    flops: int | None = None  # operations of matrix products and convolutions
    arithmetic: int | None = None  # elements that pointwise operators and reductions read or write
    special: int = 0  # number of these elements that transcendental functions process
    special_small: int = 0  # number of elements that transcendental functions process in tensors much smaller than the largest
    largest: int = 0  # elements of the largest tensor
    operators: int = 0  # operators that compute something
    reductions: bool = False  # true if the operators include reductions over rows
    dependent_steps: int = 0  # consecutive dependent steps of recurrent layers or unrolled loops; 0 if there is no recurrence
    exchanges: int = 1  # number of products and reductions in such a step that depend on each other, one after another
    step_rows: int = 0  # rows of the products in a step, which is a recurrence's batch; 0 if unknown
    scores: bool | None = None  # whether a softmax lies between two products, with only pointwise operators and moves in between; null: unknown
    functions: bool | None = None  # whether the task has transcendental functions; null: unknown
    structure: Structure | None = None  # null: unknown
    branches: int = 1  # number of products, reductions or outputs that are independent of each other


def task_facts(capture: Capture) -> TaskFacts:
    facts = TaskFacts(bytes_min=capture.bytes_min, flops=capture.flops)
    graph = capture.graph
    if graph is None:
        return facts
    sizes = {entry.name: _elements(entry.spec.shape) for entry in graph.inputs if entry.spec is not None}
    sizes |= {node.name: max((_elements(spec.shape) for spec in node.outputs), default=0) for node in graph.nodes}
    facts.largest = max(sizes.values(), default=0)
    computing = [node for node in graph.nodes if kind_of(node) not in MOVES]
    facts.operators = len(computing)
    facts.reductions = any(kind_of(node) in REDUCTIONS for node in computing)
    facts.arithmetic = 0
    for node in computing:
        kind = kind_of(node)
        if kind in PRODUCTS:
            continue
        work = max([sizes[node.name], *(sizes.get(name, 0) for name in inputs_of(node))])
        facts.arithmetic += work
        if kind in _SPECIAL and not (kind == "pow" and _small_power(node)):
            facts.special += work
            if work * 16 <= facts.largest:
                facts.special_small += work
    facts.scores = _has_scores(graph)
    layers, (steps, exchanges) = _dependent_steps(graph), unrolled_loop(graph)
    facts.dependent_steps, facts.exchanges = max(layers, steps), exchanges if steps > layers else 1
    facts.functions = facts.special > 0 or any(kind_of(node) in RECURRENT or "attention" in node.op for node in graph.nodes)
    shapes = {entry.name: tuple(entry.spec.shape) for entry in graph.inputs if entry.spec is not None}
    shapes |= {node.name: tuple(node.outputs[0].shape) for node in graph.nodes if node.outputs}
    facts.structure = structure_of(graph, shapes)
    facts.step_rows = _rows_of_layers(graph, shapes) if layers >= steps else min((p.m for p in facts.structure.products or []), default=0)
    facts.branches = max(_width(graph, [node for node in computing if kind_of(node) in PRODUCTS | REDUCTIONS]), _separate_outputs(graph))
    return facts


def _small_power(node: Node) -> bool:
    return len(node.args) == 2 and node.args[1] in (2, 3, -1)


def _elements(shape: tuple[int, ...]) -> int:
    return math.prod(shape)


def _has_scores(graph: Graph) -> bool:
    """Returns whether a product's result reaches another product through an exponential or a softmax, as attention scores do. The path may pass
    through pointwise operators, moves and reductions, but not through a selection (top-k, an index), after which the values are no longer scores."""
    if any("attention" in node.op for node in graph.nodes):
        return True
    reached: dict[str, set[str]] = {}  # what a value is derived from: "product", "softmax" (of a product)
    for node in graph.nodes:
        kind = kind_of(node)
        before = set().union(*(reached.get(name, set()) for name in inputs_of(node)))
        if kind in PRODUCTS:
            if "softmax" in before:
                return True
            reached[node.name] = {"product"}
        elif kind in CHOICES:
            reached[node.name] = set()
        else:
            reached[node.name] = before | ({"softmax"} if kind in EXPONENTIALS and "product" in before else set())
    return False


def _dependent_steps(graph: Graph) -> int:
    """Returns the length of the longest chain of time steps through the recurrent layers in which each step depends on the previous one. For a stack
    of bidirectional layers, that is steps times layers, since a layer reads both ends of the layer below; other stacks need one additional step per
    additional layer."""
    specs = {entry.name: entry.spec.shape for entry in graph.inputs if entry.spec is not None}
    specs |= {node.name: node.outputs[0].shape for node in graph.nodes if node.outputs}
    chain: dict[str, int] = {}
    for node in graph.nodes:
        before = max((chain.get(name, 0) for name in inputs_of(node)), default=0)
        chain[node.name] = before + (_steps_of_layer(node, specs) if kind_of(node) in RECURRENT else 0)
    return max(chain.values(), default=0)


def _steps_of_layer(node: Node, shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Returns the number of dependent steps of a recurrent layer. The `args` of `aten.lstm.input` and similar operators end in (has biases, layers,
    dropout, train, bidirectional, batch first)."""
    shape = shapes.get(inputs_of(node)[0]) if inputs_of(node) else None
    if not node.op.endswith(".input") or len(node.args) < 6 or shape is None or len(shape) not in (2, 3):
        return 0
    layers, bidirectional, batch_first = int(node.args[-5]), node.args[-2], node.args[-1]
    steps = shape[1] if batch_first and len(shape) == 3 else shape[0]
    return steps * layers if bidirectional else steps + layers - 1


def _rows_of_layers(graph: Graph, shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Returns the smallest batch of the recurrent layers, or 0 if there is none with a known batch."""
    found = []
    for node in graph.nodes:
        shape = shapes.get(inputs_of(node)[0], ()) if kind_of(node) in RECURRENT and node.op.endswith(".input") and inputs_of(node) else ()
        if len(shape) == 3 and node.args:
            found.append(shape[0] if node.args[-1] else shape[1])
    return min(found, default=0)


def _width(graph: Graph, heavy: list[Node]) -> int:
    """Returns the largest number of heavy operators at the same depth, where depth is counted in heavy operators. Operators at the same depth are
    independent of each other."""
    names = {node.name for node in heavy}
    depth: dict[str, int] = {}
    for node in graph.nodes:
        before = max((depth.get(name, 0) for name in inputs_of(node)), default=0)
        depth[node.name] = before + (node.name in names)
    count: dict[int, int] = {}
    for name in names:
        count[depth[name]] = count.get(depth[name], 0) + 1
    return max(count.values(), default=1)


def _separate_outputs(graph: Graph) -> int:
    """Counts the outputs that share no computing operator with any other output."""
    made = {node.name: node for node in graph.nodes}
    behind: list[set[str]] = []
    for leaf in graph.outputs:
        if not (isinstance(leaf, dict) and leaf.get("ref") in made):
            continue
        seen: set[str] = set()
        left = [leaf["ref"]]
        while left:
            name = left.pop()
            if name in made and name not in seen:
                seen.add(name)
                left += inputs_of(made[name])
        behind.append({name for name in seen if kind_of(made[name]) not in MOVES})
    return max(sum(all(not (mine & other) for other in behind if other is not mine) for mine in behind), 1) if behind else 1
