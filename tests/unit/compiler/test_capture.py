"""The captured graph: plain JSON throughout, with state changes, module names and line numbers."""

import torch

from verifier.graph import Capture
from verifier.parties.capturing.capture import capture

SOURCE = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
        self.table = torch.tensor([1.0, 2.0])

    def forward(self, x, scale=2.0):
        y = self.net(x)
        return {"y": y.relu() * scale, "t": (y.mean(), torch.full((2,), float("inf")) * self.table)}
"""


def model(source: str = SOURCE) -> torch.nn.Module:
    names: dict = {}
    exec(compile(source, "<task>", "exec"), names)
    return names["Model"]()


def test_graph_is_data():
    twin = model()
    before = {k: v.clone() for k, v in twin.state_dict().items()}
    found = capture(twin, [torch.rand(2, 3, 8, 8), 3.0], SOURCE, "train")
    assert found.reason == "" and found.graph is not None
    assert Capture.model_validate_json(found.model_dump_json()) == found
    assert found.graph.output_tree == {"y": 0, "t": {"tuple": [1, 2]}}
    assert set(found.graph.mutations) == {"net.1.running_mean", "net.1.running_var", "net.1.num_batches_tracked"}
    assert all(torch.equal(v, before[k]) for k, v in twin.state_dict().items())
    assert found.flops == 2 * 2 * 4 * 6 * 6 * 27
    assert found.bytes_min and found.bytes_min > 4 * (2 * 3 * 64 + 2 * 4 * 36)


def test_nodes_know_where_they_come_from():
    nodes = {node.op: node for node in capture(model(), [torch.rand(2, 3, 8, 8), 3.0], SOURCE, "train").graph.nodes}
    convolution = nodes["aten.conv2d.default"]
    assert (convolution.module, convolution.module_class, convolution.line) == ("net.0", "Conv2d", 12)
    assert nodes["aten.relu.default"].line == 13


def test_plain_arguments_and_constants():
    graph = capture(model(), [torch.rand(2, 3, 8, 8), 3.0], SOURCE, "eval").graph
    users = [entry for entry in graph.inputs if entry.kind == "user"]
    assert [entry.index for entry in users] == [0, 1] and users[1].value == 3.0
    assert next(entry for entry in graph.inputs if entry.kind == "constant").value == [1.0, 2.0]
    assert graph.mutations == {}


def test_what_cannot_be_exported_says_why():
    source = SOURCE.replace("y = self.net(x)", "y = x[x > 0.5]").replace("scale,", "scale, y.sum(),")
    source = source[: source.index("        return")] + "        return y\n"
    found = capture(model(source), [torch.rand(2, 3, 8, 8), 3.0], source, "train")
    assert found.graph is None and found.reason.startswith("line 12: a branch, an index or a size depends on tensor values")


def test_nested_arguments_are_taken_apart():
    source = SOURCE.replace("self.net(x)", "self.net(x['a'][0])")
    graph = capture(model(source), [{"a": (torch.rand(2, 3, 8, 8), "word")}], source, "train").graph
    users = [entry for entry in graph.inputs if entry.kind == "user"]
    assert [(entry.index, entry.path) for entry in users] == [(0, "['a'][0]"), (0, "['a'][1]")]
    assert users[0].spec is not None and users[1].value == "word"


def test_a_branch_on_data_stays_between_parts():
    source = SOURCE.replace("y = self.net(x)", "y = self.net(x) * 2\n        if y.sum() > 0:\n            y = y.exp() + 1")
    found = capture(model(source), [torch.rand(2, 3, 8, 8), 3.0], source, "train")
    assert found.graph is not None and [part.line for part in found.graph.parts] == [12, 14, 15]
    assert "if y.sum() > 0:" in found.graph.forward and found.graph.left[0].startswith("line 13: a branch")
    assert Capture.model_validate_json(found.model_dump_json()) == found
