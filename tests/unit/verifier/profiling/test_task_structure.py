"""The structure of a task's work, taken from captured graphs: shapes of products, rows and sorts, chains of dependent steps, and constant parts."""

from __future__ import annotations

from typing import Any

import pytest

from verifier.graph import GROUPED, Capture, Graph
from verifier.profiling.diagnosing.task_facts import task_facts


def spec(*shape: int) -> dict[str, Any]:
    return {"shape": list(shape), "dtype": "float32"}


def node(name: str, op: str, reads: list[str], shape: tuple[int, ...], *more: Any) -> dict[str, Any]:
    return {"name": name, "op": f"aten.{op}", "args": [*({"ref": read} for read in reads), *more], "outputs": [spec(*shape)]}


def facts(nodes: list[dict[str, Any]], **inputs: tuple[int, ...]):
    """Returns facts about a graph in which inputs whose names begin with `w` are parameters."""
    entries = [
        {"name": name, "kind": "parameter" if name.startswith("w") else "user", "target": name, "spec": spec(*shape), "index": at}
        for at, (name, shape) in enumerate(inputs.items())
    ]
    graph = Graph.model_validate({"inputs": entries, "nodes": nodes, "outputs": [{"ref": nodes[-1]["name"]}]})
    return task_facts(Capture(task="t", mode="train", graph=graph))


@pytest.mark.parametrize(
    ("made", "sizes"),
    [
        (node("p", "linear", ["x", "w"], (4, 8, 32)), (1, 32, 32, 16)),
        (node("p", "mm", ["x", "w"], (8, 32)), (1, 8, 32, 16)),
        (node("p", "bmm", ["x", "w"], (4, 8, 32)), (4, 8, 32, 16)),
        (node("p", "matmul", ["x", "w"], (4, 8)), (4, 8, 1, 16)),
    ],
)
def test_products_are_read_as_matrices(made, sizes):
    shapes = {"linear": ((4, 8, 16), (32, 16)), "mm": ((8, 16), (16, 32)), "bmm": ((4, 8, 16), (4, 16, 32)), "matmul": ((4, 8, 16), (4, 16, 1))}
    x, w = shapes[made["op"].split(".")[1]]
    made = {**made, "outputs": [spec(4, 8, 1)]} if "matmul" in made["op"] else made
    [product] = facts([made], x=x, w=w).structure.products
    assert (product.batch, product.m, product.n, product.k) == sizes


def test_a_convolution_is_a_product_and_may_be_depthwise():
    dense = facts([node("p", "conv2d", ["x", "w"], (2, 64, 16, 16))], x=(2, 32, 16, 16), w=(64, 32, 3, 3)).structure
    assert [(p.batch, p.m, p.n, p.k) for p in dense.products] == [(1, 512, 64, 288)] and not dense.depthwise
    assert facts([node("p", "conv2d", ["x", "w"], (2, 32, 16, 16))], x=(2, 32, 16, 16), w=(32, 1, 3, 3)).structure.depthwise


def test_products_that_a_layer_hides_are_unknown():
    layer = {"name": "p", "op": "aten.lstm.input", "args": [{"ref": "x"}, [], [], True, 1, 0.0, True, False, True], "outputs": [spec(2, 64, 8)]}
    assert facts([layer], x=(2, 64, 8)).structure.products is None


def test_groups_are_products_of_different_or_data_dependent_sizes():
    grouped = {"name": "p", "op": GROUPED, "args": [{"ref": "x"}, {"ref": "w"}, {"ref": "x"}], "outputs": [spec(64, 32)]}
    found = facts([grouped], x=(64, 16), w=(8, 32, 16)).structure
    assert found.groups and [(p.batch, p.m, p.n, p.k) for p in found.products] == [(8, 8, 32, 16)]
    one = node("a", "linear", ["x", "w"], (64, 32))
    assert not facts([one], x=(64, 16), w=(32, 16)).structure.groups
    equal = [one, node("b", "linear", ["x", "w2"], (64, 32)), node("c", "add", ["a", "b"], (64, 32))]
    assert not facts(equal, x=(64, 16), w=(32, 16), w2=(32, 16)).structure.groups
    unequal = [one, node("b", "linear", ["x", "w2"], (64, 8)), node("c", "cat", ["a", "b"], (64, 40))]
    assert facts(unequal, x=(64, 16), w=(32, 16), w2=(8, 16)).structure.groups


def test_rows_and_sorts():
    nodes = [node("a", "softmax.int", ["x"], (4, 100), -1), node("b", "sum.dim_IntList", ["a"], (4,), [1]), node("c", "topk", ["x"], (4, 5), 5)]
    found = facts(nodes, x=(4, 100)).structure
    assert [tuple(row) for row in found.rows] == [("softmax", 4, 100), ("sum", 4, 100)] and found.sorted_lengths == [100]


def test_what_depends_on_parameters_alone_is_foldable():
    assert facts([node("a", "exp", ["w"], (8, 8)), node("p", "linear", ["x", "a"], (4, 8))], x=(4, 8), w=(8, 8)).structure.foldable
    assert facts([node("a", "cat", ["w", "w2"], (16, 8)), node("p", "linear", ["x", "a"], (4, 16))], x=(4, 8), w=(8, 8), w2=(8, 8)).structure.foldable
    assert not facts([node("a", "t", ["w"], (8, 8)), node("p", "mm", ["x", "a"], (4, 8))], x=(4, 8), w=(8, 8)).structure.foldable


def unrolled(count: int, shared: bool) -> list[dict[str, Any]]:
    """Returns the nodes of an unrolled loop over a product and a function, with one weight for all steps or one for each."""
    nodes, state = [], "x"
    for at in range(count):
        nodes.append(node(f"p{at}", "linear", [state, "w" if shared else f"w{at}"], (4, 8)))
        nodes.append(node(f"t{at}", "tanh", [f"p{at}"], (4, 8)))
        state = f"t{at}"
    return nodes


def test_the_steps_of_an_unrolled_loop_are_counted_and_layers_are_none():
    assert facts(unrolled(40, shared=True), x=(4, 8), w=(8, 8)).dependent_steps == 40
    assert facts(unrolled(8, shared=True), x=(4, 8), w=(8, 8)).dependent_steps == 0, "a few steps are no recurrence"
    layers = {f"w{at}": (8, 8) for at in range(40)}
    assert facts(unrolled(40, shared=False), x=(4, 8), **layers).dependent_steps == 0, "each layer has a weight of its own"


def test_layers_that_share_the_kind_of_a_reduction_are_no_loop():
    nodes, state = [], "x"
    for at in range(20):
        nodes += [node(f"p{at}", "linear", [state, f"w{at}"], (4, 8)), node(f"s{at}", "softmax.int", [f"p{at}"], (4, 8), -1)]
        state = f"s{at}"
    assert facts(nodes, x=(4, 8), **{f"w{at}": (8, 8) for at in range(20)}).dependent_steps == 0
    alone = [node(f"s{at}", "logsumexp", [f"s{at - 1}" if at else "x"], (8, 8), [at % 2]) for at in range(40)]
    assert facts(alone, x=(8, 8)).dependent_steps == 40, "normalising rows and columns in turn"


def test_the_products_and_reductions_of_a_step_that_need_each_other_are_exchanges():
    """A recurrence that normalises both its gates and its cell, as in an LSTM with layer norms."""
    nodes, state = [], "x"
    for at in range(20):
        nodes += [
            node(f"gates{at}", "linear", [state, "w"], (4, 8)),
            node(f"normed{at}", "layer_norm", [f"gates{at}"], (4, 8), [8]),
            node(f"cell{at}", "mul", [f"normed{at}", state], (4, 8)),
            node(f"state{at}", "layer_norm", [f"cell{at}"], (4, 8), [8]),
        ]
        state = f"state{at}"
    found = facts(nodes, x=(4, 8), w=(8, 8))
    assert (found.dependent_steps, found.exchanges) == (20, 3)
    assert facts(unrolled(40, shared=True), x=(4, 8), w=(8, 8)).exchanges == 1
