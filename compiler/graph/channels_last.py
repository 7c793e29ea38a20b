"""Selects values to store in channels-last layout (N, H, W, C), which tensor-core convolutions read and write.

With the default layout, cuDNN transposes the images before and after every 16-bit convolution. If the convolutions and the operators between them use
the channels-last layout, only the inputs are transposed. Values that are read through views that this layout cannot express (such as a flattened
image) keep the default layout.
"""

from __future__ import annotations

from typing import Protocol

from compiler.graph.layout import SPLITS, VIEWS, Layout, view
from compiler.graph.values import plain, refs
from verifier.graph import Node

CONVOLUTIONS = ("aten.conv2d.default", "aten.conv_transpose2d.input")


class Graph(Protocol):
    nodes: dict[str, Node]
    users: dict[str, list[str]]


def layout(name: str, shape: tuple[int, ...]) -> Layout:
    _, channels, height, width = shape
    return Layout(name, shape, (channels * height * width, 1, channels * width, channels))


def values(network: Graph) -> set[str]:
    """Returns the results of convolutions and of operators that read such results and also produce multi-channel images."""
    chosen: set[str] = set()
    for node in network.nodes.values():
        shape = tuple(node.outputs[0].shape) if node.outputs else ()
        if len(shape) != 4 or shape[1] == 1 or shape[2] * shape[3] == 1 or node.op in VIEWS or node.op in SPLITS:
            continue
        sources = {_origin(network, name) for name in refs([node.args, list(node.kwargs.values())])}
        if node.op in CONVOLUTIONS or sources & chosen:
            chosen.add(node.name)
    return {name for name in chosen if _stays_view(network, name, layout(name, tuple(network.nodes[name].outputs[0].shape)))}


def _origin(network: Graph, name: str) -> str:
    """Returns the value at the end of a chain of views."""
    while name in network.nodes and network.nodes[name].op in VIEWS:
        name = network.nodes[name].args[0]["ref"]
    return name


def _stays_view(network: Graph, name: str, source: Layout) -> bool:
    """Returns whether all views of `name` remain views in this layout."""
    for user in network.users[name]:
        node = network.nodes[user]
        if node.op in SPLITS:
            return False
        if node.op not in VIEWS or node.args[0] != {"ref": name}:
            continue
        found = view(node.op, source, [plain(argument) for argument in node.args[1:]], tuple(node.outputs[0].shape))
        if found is None or not _stays_view(network, user, found):
            return False
    return True
