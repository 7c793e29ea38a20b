"""Facts that hold for every program of a task, from its captured graph: minimum bytes and operations, branches, work by kind.

A diagnosis compares what a program did with what the task requires. These facts concern the task, never a program's source.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from verifier.graph import Capture, Graph, Node

# fmt: off
_PRODUCTS = frozenset([
    "mm", "addmm", "bmm", "baddbmm", "linear", "convolution", "matmul", "conv1d", "conv2d", "conv3d", "einsum",
])
_REDUCTIONS = frozenset([
    "sum", "mean", "amax", "amin", "max", "min", "var", "var_mean", "std", "prod", "softmax", "_softmax", "log_softmax", "_log_softmax",
    "layer_norm", "native_layer_norm", "group_norm", "native_group_norm", "rms_norm", "instance_norm", "cumsum", "argmax", "argmin", "logsumexp",
    "norm", "linalg_vector_norm", "_cdist_forward", "bincount", "cross_entropy_loss",
])
_SPECIAL = frozenset([
    "exp", "log", "log1p", "expm1", "sin", "cos", "tan", "tanh", "atan", "asin", "acos", "erf", "sigmoid", "gelu", "silu", "mish", "softplus",
    "pow", "elu", "softmax", "_softmax", "log_softmax", "_log_softmax", "logsumexp", "log_sigmoid_forward", "log_sigmoid",
])
_EXPONENTIALS = frozenset(["softmax", "_softmax", "exp"])
_CHOICES = frozenset([
    "topk", "sort", "argmax", "argmin", "index", "index_put", "index_add", "scatter", "scatter_add", "gather", "one_hot", "embedding",
])
_RECURRENT = frozenset(["lstm", "gru", "rnn_tanh", "rnn_relu"])
# These operators move, name or create data, without arithmetic.
_MOVES = frozenset([
    "view", "reshape", "_unsafe_view", "permute", "transpose", "t", "unsqueeze", "squeeze", "expand", "select", "slice", "clone", "alias",
    "unbind", "split", "split_with_sizes", "getitem", "cat", "stack", "pad", "constant_pad_nd", "_to_copy", "empty", "full", "zeros", "ones",
    "arange", "zeros_like", "ones_like", "full_like", "detach", "lift_fresh_copy", "roll", "flip", "index", "repeat", "copy", "embedding",
    "upsample_nearest2d", "pixel_shuffle", "tril", "triu",
])
# fmt: on


class TaskFacts(BaseModel):
    bytes_min: int | None = None  # inputs and weights read once, outputs written once
    flops: int | None = None  # operations of matrix products and convolutions
    arithmetic: int | None = None  # elements that pointwise operators and reductions read or write
    special: int = 0  # elements of transcendental functions among these
    special_small: int = 0  # elements of transcendental functions on tensors much smaller than the largest
    largest: int = 0  # elements of the largest tensor
    operators: int = 0  # operators that compute something
    reductions: bool = False  # true if the operators include reductions over rows
    dependent_steps: int = 0  # time steps of recurrent layers that follow each other; 0 if no layer is recurrent
    scores: bool | None = None  # a softmax lies between two products, with nothing but pointwise operators and moves between; null: unknown
    branches: int = 1  # products, reductions or outputs that are independent of each other


def task_facts(capture: Capture) -> TaskFacts:
    facts = TaskFacts(bytes_min=capture.bytes_min, flops=capture.flops)
    graph = capture.graph
    if graph is None:
        return facts
    sizes = {entry.name: _elements(entry.spec.shape) for entry in graph.inputs if entry.spec is not None}
    sizes |= {node.name: max((_elements(spec.shape) for spec in node.outputs), default=0) for node in graph.nodes}
    facts.largest = max(sizes.values(), default=0)
    computing = [node for node in graph.nodes if _kind(node) not in _MOVES]
    facts.operators = len(computing)
    facts.reductions = any(_kind(node) in _REDUCTIONS for node in computing)
    facts.arithmetic = 0
    for node in computing:
        kind = _kind(node)
        if kind in _PRODUCTS:
            continue
        work = max([sizes[node.name], *(sizes.get(name, 0) for name in _inputs(node))])
        facts.arithmetic += work
        if kind in _SPECIAL and not (kind == "pow" and _small_power(node)):
            facts.special += work
            if work * 16 <= facts.largest:
                facts.special_small += work
    facts.scores = _has_scores(graph)
    facts.dependent_steps = _dependent_steps(graph)
    facts.branches = max(_width(graph, [node for node in computing if _kind(node) in _PRODUCTS | _REDUCTIONS]), _separate_outputs(graph))
    return facts


def _kind(node: Node) -> str:
    """Returns an operator's plain name: "aten.sum.dim_IntList" -> "sum"."""
    parts = node.op.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def _small_power(node: Node) -> bool:
    return len(node.args) == 2 and node.args[1] in (2, 3, -1)


def _elements(shape: tuple[int, ...]) -> int:
    return math.prod(shape)


def _inputs(node: Node) -> list[str]:
    found: list[str] = []

    def look(value: Any) -> None:
        if isinstance(value, dict):
            if "ref" in value:
                found.append(value["ref"])
            else:
                for part in value.values():
                    look(part)
        elif isinstance(value, list):
            for part in value:
                look(part)

    look(node.args)
    look(node.kwargs)
    return found


def _has_scores(graph: Graph) -> bool:
    """Returns whether a product's result reaches another product through an exponential or a softmax, as attention scores do. The path may pass
    pointwise operators, moves and reductions, but not a selection (top-k, an index), after which the values are no longer scores."""
    if any("attention" in node.op for node in graph.nodes):
        return True
    reached: dict[str, set[str]] = {}  # what a value derives from: "product", "softmax" (of a product)
    for node in graph.nodes:
        kind = _kind(node)
        before = set().union(*(reached.get(name, set()) for name in _inputs(node)))
        if kind in _PRODUCTS:
            if "softmax" in before:
                return True
            reached[node.name] = {"product"}
        elif kind in _CHOICES:
            reached[node.name] = set()
        else:
            reached[node.name] = before | ({"softmax"} if kind in _EXPONENTIALS and "product" in before else set())
    return False


def _dependent_steps(graph: Graph) -> int:
    """Returns the longest chain of time steps through the recurrent layers, in which each step needs the one before. A stack of bidirectional layers
    needs steps times layers, since a layer reads both ends of the one below; other stacks need one additional step per additional layer."""
    specs = {entry.name: entry.spec.shape for entry in graph.inputs if entry.spec is not None}
    specs |= {node.name: node.outputs[0].shape for node in graph.nodes if node.outputs}
    chain: dict[str, int] = {}
    for node in graph.nodes:
        before = max((chain.get(name, 0) for name in _inputs(node)), default=0)
        chain[node.name] = before + (_steps_of_layer(node, specs) if _kind(node) in _RECURRENT else 0)
    return max(chain.values(), default=0)


def _steps_of_layer(node: Node, shapes: Mapping[str, tuple[int, ...]]) -> int:
    """`args` of `aten.lstm.input` and its like end in (has biases, layers, dropout, train, bidirectional, batch first)."""
    shape = shapes.get(_inputs(node)[0]) if _inputs(node) else None
    if not node.op.endswith(".input") or len(node.args) < 6 or shape is None or len(shape) not in (2, 3):
        return 0
    layers, bidirectional, batch_first = int(node.args[-5]), node.args[-2], node.args[-1]
    steps = shape[1] if batch_first and len(shape) == 3 else shape[0]
    return steps * layers if bidirectional else steps + layers - 1


def _width(graph: Graph, heavy: list[Node]) -> int:
    """Returns the largest number of heavy operators at the same depth of such operators; they are independent of each other."""
    names = {node.name for node in heavy}
    depth: dict[str, int] = {}
    for node in graph.nodes:
        before = max((depth.get(name, 0) for name in _inputs(node)), default=0)
        depth[node.name] = before + (node.name in names)
    count: dict[int, int] = {}
    for name in names:
        count[depth[name]] = count.get(depth[name], 0) + 1
    return max(count.values(), default=1)


def _separate_outputs(graph: Graph) -> int:
    """Counts outputs that share no computing operator with any other output."""
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
                left += _inputs(made[name])
        behind.append({name for name in seen if _kind(made[name]) not in _MOVES})
    return max(sum(all(not (mine & other) for other in behind if other is not mine) for mine in behind), 1) if behind else 1
