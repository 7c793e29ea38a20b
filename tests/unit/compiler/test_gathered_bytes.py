"""If a tensor is only gathered, floors and traffic count only the gathered elements, in sectors of memory."""

from __future__ import annotations

import pytest

from agents.floor import floor_of_step
from agents.roles.compiled import Compiled
from compiler import DeviceFigures, make_plan
from verifier.gathering import gathered_bytes
from verifier.graph import Capture, Graph, GraphInput, Node
from verifier.parties.capturing.capture import minimal_bytes
from verifier.task import TensorSpec

H200 = DeviceFigures.h200()
NOISE, TOKENS = TensorSpec(shape=(64, 64000), dtype="float32"), TensorSpec(shape=(64, 50), dtype="int64")
DRAWN = TensorSpec(shape=(64, 50), dtype="float32")
GATHERED = 64 * 50 * 32  # in bytes: a sector for each element


def sampling(*more: Node, result: str = "drawn") -> Graph:
    inputs = [GraphInput(name="noise", kind="user", spec=NOISE, index=0), GraphInput(name="tokens", kind="user", spec=TOKENS, index=1)]
    nodes = [
        Node(name="taken", op="aten.gather.default", args=[{"ref": "noise"}, 1, {"ref": "tokens"}], outputs=[DRAWN]),
        Node(name="drawn", op="aten.log.default", args=[{"ref": "taken"}], outputs=[DRAWN]),
        *more,
    ]
    return Graph(inputs=inputs, nodes=nodes, outputs=[{"ref": result}], output_tree=0)


@pytest.mark.parametrize(
    ("op", "args", "shape", "result", "nbytes"),
    [
        ("aten.gather.default", [{}, 1, {}], (64, 64000), (64, 50), GATHERED),
        ("aten.gather.default", [{}, 0, {}], (640, 64), (32, 64), 32 * 64 * 4),
        ("aten.embedding.default", [{}, {}], (50000, 128), (64, 128), 64 * 128 * 4),
        ("aten.embedding.default", [{}, {}], (50, 128), (64, 128), 50 * 128 * 4),
        ("aten.index_select.default", [{}, 0, {}], (5000, 3), (40, 3), 40 * 32),
        ("aten.index.Tensor", [{}, [None, {}]], (6, 640, 32), (6, 9, 32), 6 * 9 * 32 * 4),
    ],
)
def test_a_gather_reads_sectors_around_its_elements(op, args, shape, result, nbytes):
    assert gathered_bytes(op, args, shape, 4, result) == nbytes


def test_another_operator_does_not_gather():
    assert gathered_bytes("aten.add.Tensor", [{}, {}], (64, 64), 4, (64, 64)) is None


def test_the_least_bytes_of_a_task_count_what_is_gathered():
    rest = 2 * 64 * 50 * 4 + 64 * 50 * 4  # the positions, of 8 bytes each, and the result
    assert minimal_bytes(sampling()) == GATHERED + rest
    total = Node(name="total", op="aten.sum.default", args=[{"ref": "noise"}], outputs=[TensorSpec(shape=(), dtype="float32")])
    summed = sampling(total, Node(name="both", op="aten.add.Tensor", args=[{"ref": "drawn"}, {"ref": "total"}], outputs=[DRAWN]), result="both")
    assert minimal_bytes(summed) == 64 * 64000 * 4 + rest, "another operator reads all of it"


def test_a_gather_through_a_view_or_a_cast_counts_the_same():
    graph = sampling()
    graph.nodes[0].args[0] = {"ref": "seen"}
    graph.nodes.insert(0, Node(name="seen", op="aten._to_copy.default", args=[{"ref": "noise"}], outputs=[NOISE]))
    assert minimal_bytes(graph) == minimal_bytes(sampling())


def test_the_floors_of_a_group_and_of_a_step_count_what_is_gathered():
    graph = sampling()
    plan = make_plan(Capture(task="t", mode="train", graph=graph, bytes_min=minimal_bytes(graph), flops=0), "", H200)
    assert sum(group.bytes for group in plan.groups) < 10**6, [group.model_dump() for group in plan.groups]
    assert floor_of_step(Compiled(plan, H200), {"operators": [group.id for group in plan.groups]}).nbytes == minimal_bytes(graph)


def test_one_result_of_several_moves_nothing():
    pair = [TensorSpec(shape=(64, 8), dtype="float32"), TensorSpec(shape=(64, 8), dtype="int64")]
    nodes = [
        Node(name="both", op="aten.topk.default", args=[{"ref": "noise"}, 8], outputs=pair),
        Node(name="values", op="getitem", args=[{"ref": "both"}, 0], outputs=pair[:1]),
        Node(name="places", op="getitem", args=[{"ref": "both"}, 1], outputs=pair[1:]),
    ]
    inputs = [GraphInput(name="noise", kind="user", spec=NOISE, index=0)]
    graph = Graph(inputs=inputs, nodes=nodes, outputs=[{"ref": "values"}, {"ref": "places"}], output_tree=0)
    plan = make_plan(Capture(task="t", mode="train", graph=graph), "", H200)
    taken = [group for group in plan.groups if group.kinds == ["getitem"]]
    assert taken and all(group.bytes == 0 and group.floor_ms == 0 for group in taken)
