"""Finds state that no call of forward changes, so that values that kernels derive from it are computed only once."""

from __future__ import annotations

import ast
import textwrap

from verifier.graph import Graph, GraphInput

EVERYTHING = frozenset({"parameters", "named_parameters"})  # methods of a module that can change all of its parameters


def steady(graph: Graph) -> set[str]:
    """Returns the names of the parameters and buffers that no call of forward changes. If parts of forward stay in Python, their effect on buffers
    and on the parameters that they name is unknown, so these are excluded."""
    state = [entry for entry in graph.inputs if entry.kind in ("parameter", "buffer") and entry.target not in graph.mutations]
    if graph.parts:
        tree = ast.parse(textwrap.dedent(graph.forward))
        named = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        state = [entry for entry in state if entry.kind == "parameter" and not named & EVERYTHING and not _path(entry) <= named]
    return {entry.name for entry in state}


def _path(entry: GraphInput) -> set[str]:
    """Returns the attributes that lead to the entry, without list indices."""
    return {word for word in entry.target.split(".") if not word.isdigit()}
