"""Captured runs of statements, and their assembly into one graph of parts."""

# sandboxed: reads graphs of the models that tasks define

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

import torch

from verifier.graph import Graph, Part
from verifier.parties.capturing.calling import FlatCall

# Operators that justify a part by themselves, and those that compute nothing.
SINGLE = ("linear", "matmul", "bmm", "mm", "addmm", "conv", "scaled_dot_product", "softmax", "norm", "einsum", "cumsum", "loss")
VIEWS = ("_assert", "to.", "_to_copy", "float", "view", "reshape", "transpose", "permute", "select", "slice", "expand", "unsqueeze", "squeeze",
         "getitem", "alias", "detach", "split", "chunk", "full", "arange", "zeros", "ones", "empty", "t.default")  # fmt: skip


@dataclass
class Found:
    """A run in the operators that it calls. Its form in the compiler's operators takes longer and is only computed for runs that are used."""

    exported: torch.export.ExportedProgram
    call: FlatCall
    graph: Graph


@dataclass
class Run:
    """Captured statements that stand side by side."""

    items: list[ast.stmt]
    found: Found
    reads: list[str]
    writes: list[str]
    returns: bool
    lines: list[int]  # source lines of its statements
    loop: bool = False  # within a loop


def worth(graph: Graph) -> bool:
    """Whether a kernel could gain anything: two computing operators, or one with its own kernel family."""
    names = [node.op.removeprefix("aten.") for node in graph.nodes]
    computing = [name for name in names if not name.startswith(VIEWS)]
    return len(computing) > 1 or any(word in name for name in computing for word in SINGLE)


def add(whole: Graph, run: Run, name: str) -> None:
    """Appends a run to the graph of parts, under names of its own."""
    graph, taken = run.found.graph, {entry.name for entry in whole.inputs} | {node.name for node in whole.nodes}
    names: dict[str, str] = {}
    for old in [*(entry.name for entry in graph.inputs), *(node.name for node in graph.nodes)]:
        new, number = old, 1
        while new in taken:
            number += 1
            new = f"{old}_of_{number}"
        taken.add(new)
        names[old] = new

    def renamed(value: Any) -> Any:
        if isinstance(value, dict):
            return {"ref": names[value["ref"]]} if "ref" in value else value
        return [renamed(item) for item in value] if isinstance(value, list) else value

    inputs = [entry.model_copy(update={"name": names[entry.name]}) for entry in graph.inputs]
    first = len(whole.nodes)
    whole.inputs += inputs
    for node in graph.nodes:
        kwargs = {key: renamed(value) for key, value in node.kwargs.items()}
        line = run.lines[node.line - 1] if node.line is not None and node.line <= len(run.lines) else None
        whole.nodes.append(node.model_copy(update={"name": names[node.name], "args": renamed(node.args), "kwargs": kwargs, "line": line}))
    shift = len(whole.outputs)
    whole.outputs += [renamed(leaf) for leaf in graph.outputs]
    whole.mutations.update({target: names[value] for target, value in graph.mutations.items()})
    whole.mutated_inputs.update({names[source]: names[value] for source, value in graph.mutated_inputs.items()})
    reads = {entry.name: run.reads[entry.position] + entry.path for entry in inputs if entry.kind == "user"}
    targets = ", ".join(run.writes)
    whole.parts.append(
        Part(
            name=name, line=run.lines[0], inputs=[entry.name for entry in inputs], first=first, end=len(whole.nodes), reads=reads,
            target="return " if run.returns else f"{targets} = " if targets else "", output_tree=shifted(graph.output_tree, shift),
            statements="\n".join(ast.unparse(item) for item in run.items),
        )
    )  # fmt: skip


def shifted(tree: Any, by: int) -> Any:
    if isinstance(tree, int):
        return tree + by
    if isinstance(tree, list):
        return [shifted(item, by) for item in tree]
    if isinstance(tree.get("made"), dict):
        return {"made": {**tree["made"], "items": shifted(tree["made"]["items"], by)}}
    return {key: shifted(item, by) for key, item in tree.items()}
