"""Captured runs of statements, the conditions under which they are equivalent to these statements (the variables that they read must be as they were
during the capture), and their assembly into one graph of parts."""

# sandboxed: reads graphs of the models that tasks define

from __future__ import annotations

import ast
import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import FunctionType
from typing import Any

import torch

from verifier.graph import Graph, Part
from verifier.parties.capturing.calling import FlatCall, parts_of
from verifier.parties.capturing.reading import reached
from verifier.parties.capturing.statements import made_function

NAMESPACES = ("torch.nn.functional", "torch")  # modules that are searched for functions that have no name in the source
# Operators that justify a part on their own, and operators that compute nothing.
SINGLE = ("linear", "matmul", "bmm", "mm", "addmm", "conv", "scaled_dot_product", "softmax", "norm", "einsum", "cumsum", "loss")
VIEWS = ("_assert", "to.", "_to_copy", "float", "view", "reshape", "transpose", "permute", "select", "slice", "expand", "unsqueeze", "squeeze",
         "getitem", "alias", "detach", "split", "chunk", "full", "arange", "zeros", "ones", "empty", "t.default")  # fmt: skip


@dataclass
class Found:
    """A run in terms of the operators that it calls. Converting it to the compiler's operators takes longer and is done only for runs that are
    used."""

    exported: torch.export.ExportedProgram
    call: FlatCall
    graph: Graph


@dataclass
class Run:
    """A captured sequence of adjacent statements."""

    items: list[ast.stmt]
    found: Found
    reads: list[str]
    writes: list[str]
    returns: bool
    lines: list[int]  # source lines of its statements
    loop: bool = False  # whether it is inside a loop
    tests: list[str] = field(default_factory=list)  # conditions on the variables that it reads, as Python code


def worth(graph: Graph) -> bool:
    """Returns whether a kernel could be faster, that is, whether the graph has at least two operators that compute something, or one that justifies a
    part on its own."""
    names = [node.op.removeprefix("aten.") for node in graph.nodes]
    computing = [name for name in names if not name.startswith(VIEWS)]
    return len(computing) > 1 or any(word in name for name in computing for word in SINGLE)


def add(whole: Graph, run: Run, name: str) -> None:
    """Appends a run to the graph of parts, under unique names."""
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
            name=name, line=run.lines[0], inputs=[entry.name for entry in inputs], first=first, end=len(whole.nodes), reads=reads, tests=run.tests,
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


@dataclass
class Guards:
    """Generates conditions on the variables of one forward. `tree` is its syntax tree; `names` is the namespace of its source."""

    model: torch.nn.Module
    tree: ast.FunctionDef
    names: Mapping[str, Any]

    def conditions(self, name: str, value: Any) -> list[str]:
        """Returns conditions, as Python code, that must precede those on sizes, types and non-tensor values. Raises `ValueError` for a value that
        cannot be compared with the value in another call."""
        found: list[str] = []
        self._add(name, name, value, found, self._may_be_no_tensor(name))
        return found

    def _add(self, name: str, text: str, value: Any, found: list[str], doubtful: bool) -> None:
        if isinstance(value, torch.Tensor):
            if type(value) not in (torch.Tensor, torch.nn.Parameter):  # its results are of that class, but those of a part are not
                raise ValueError("tensors of a class of the source's own are left to PyTorch")
            if doubtful:
                found.append(f"isinstance({text}, torch.Tensor)")
        elif (parts := parts_of(value)) is not None:
            if isinstance(value, Mapping):
                found.append(f"list({text}) == {list(value)!r}" if not doubtful else f"isinstance({text}, dict) and list({text}) == {list(value)!r}")
            elif isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
                kind = "list" if isinstance(value, list) else "tuple"
                found.append(f"len({text}) == {len(value)}" if not doubtful else f"isinstance({text}, {kind}) and len({text}) == {len(value)}")
            for path, item in parts:
                self._add(name, text + path, item, found, doubtful or isinstance(value, (list, Mapping)))
        elif isinstance(value, torch.nn.Module):
            home = next((path for path, module in self.model.named_modules() if module is value), None)
            if home is None:
                raise ValueError(f"`{name}` is a module that the model does not hold")
            found.append(f"{text} is {reached(self.model, home)}")
        elif isinstance(value, float) and value != value:
            found.append(f"{text} != {text}")
        elif type(value) in (int, float) and doubtful:  # 3 == 3.0, but their results have different types
            found.append(f"type({text}) is {type(value).__name__}")
        elif isinstance(value, Enum):
            if (known := self._known(type(value))) is None:
                raise ValueError(f"`{name}` is of the class {type(value).__name__}, which forward does not name")
            found.append(f"{text} is {known}[{value.name!r}]")
        elif callable(value):
            self._function(name, text, value, found)

    def _function(self, name: str, text: str, value: Any, found: list[str]) -> None:
        made = [node for node in ast.walk(self.tree) if node is not self.tree and made_function(node) == name]
        if len(made) == 1 and self._stores(name) == 1 and isinstance(value, FunctionType):
            if set(value.__code__.co_freevars) <= {"self"} and all(isinstance(one, ast.Constant) for one in _defaults(made[0])):
                return  # the statement in forward always creates the same function
            raise ValueError(f"it calls the function `{name}`, which uses variables of forward")
        if (known := self._known(value)) is None:
            raise ValueError(f"`{name}` is an object of type {type(value).__name__}, which cannot be compared with that of another call")
        found.append(f"{text} is {known}")

    def _known(self, value: Any) -> str | None:
        """Returns a name under which a program can access a function or a class, or None if there is none."""
        read = {node.id for node in ast.walk(self.tree) if isinstance(node, ast.Name)}
        for word in sorted(read):
            if self.names.get(word) is value:
                return word
        word = getattr(value, "__name__", "")
        for home in NAMESPACES:
            if word.isidentifier() and getattr(importlib.import_module(home), word, None) is value:
                return f"{home}.{word}"
        return None

    def _stores(self, name: str) -> int:
        stores = sum(isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load) for node in ast.walk(self.tree))
        return stores + sum(isinstance(node, ast.FunctionDef) and node.name == name and node is not self.tree for node in ast.walk(self.tree))

    def _may_be_no_tensor(self, name: str) -> bool:
        """Returns whether a variable may hold something other than a tensor in another call, because it is assigned in several places or from a value
        that is not computed here."""
        values = [
            node.value
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Assign) and any(isinstance(target, ast.Name) and target.id == name for target in node.targets)
        ]
        return len(values) > 1 or any(not isinstance(value, (ast.Call, ast.BinOp, ast.UnaryOp)) for value in values)


def _defaults(made: ast.AST) -> list[ast.expr]:
    inner = made.value if isinstance(made, ast.Assign) else made
    if not isinstance(inner, (ast.FunctionDef, ast.Lambda)):
        return []
    arguments = inner.args
    return [*arguments.defaults, *filter(None, arguments.kw_defaults)]
