"""Computes equal operators once: for example, two calls of a rotary embedding compute the same sines and cosines."""

from __future__ import annotations

import json
from collections.abc import Collection

from compiler.graph.constants import CONSTANTS
from compiler.graph.values import refs, renamed
from verifier.draws import draws
from verifier.graph import ASSERTION, Node


def common(nodes: list[Node], results: Collection[str]) -> list[Node]:
    """Returns the operators, except those that repeat an earlier one. Filled tensors stay separate, because a program may overwrite each of them.
    Random numbers also stay separate, and so do values that forward returns, because these must not share memory."""
    known: dict[str, str] = {}
    instead: dict[str, str] = {}
    found = []
    for node in nodes:
        args, kwargs = renamed(node.args, instead), {key: renamed(value, instead) for key, value in node.kwargs.items()}
        if any(name in instead for name in refs([node.args, list(node.kwargs.values())])):
            node = node.model_copy(update={"args": args, "kwargs": kwargs})
        apart = "." in node.op and node.op.split(".")[1] in CONSTANTS or node.op == ASSERTION or draws(node.op, node.args, node.kwargs)
        if not apart and node.name not in results:
            key = json.dumps([node.op, node.args, node.kwargs], sort_keys=True)
            if key in known:
                instead[node.name] = known[key]
                continue
            known[key] = node.name
        found.append(node)
    return found
