"""State that forward leaves as it is, from one call to the next: what kernels derive from it is made once."""

from __future__ import annotations

import ast
import textwrap

from verifier.graph import Graph, GraphInput

EVERYTHING = frozenset({"parameters", "named_parameters"})  # methods of a module through which its parameters are changed all together


def steady(graph: Graph) -> set[str]:
    """Names of the parameters and buffers that no call of forward changes. Where parts of forward stay Python, what that does to a buffer is not
    known, nor to a parameter that it names."""
    state = [entry for entry in graph.inputs if entry.kind in ("parameter", "buffer") and entry.target not in graph.mutations]
    if graph.parts:
        tree = ast.parse(textwrap.dedent(graph.forward))
        named = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        state = [entry for entry in state if entry.kind == "parameter" and not named & EVERYTHING and not _path(entry) <= named]
    return {entry.name for entry in state}


def _path(entry: GraphInput) -> set[str]:
    """The attributes that lead to it; positions in a list are none."""
    return {word for word in entry.target.split(".") if not word.isdigit()}
