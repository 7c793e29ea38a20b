"""Which values of a network lie in memory with their channels innermost (N, H, W, C): what tensor cores' convolutions read and write.

cuDNN turns images of the usual layout around for its 16 bit kernels, before and after every convolution. Where convolutions, and what stands
between them, keep their channels innermost, nothing is turned around but the inputs. Values that are read through views which that layout does not
allow (a flattened image) stay as they are.
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
    """Results of convolutions, and of what reads such results and has images of several channels itself."""
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
    """The value beneath views."""
    while name in network.nodes and network.nodes[name].op in VIEWS:
        name = network.nodes[name].args[0]["ref"]
    return name


def _stays_view(network: Graph, name: str, source: Layout) -> bool:
    """Whether all views of `name` are views in this layout too."""
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
