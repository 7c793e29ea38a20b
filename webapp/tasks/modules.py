"""Reads plain `nn.Module` sources: the classes, and the arguments of their constructors and of `forward`. The source is parsed but never run."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from verifier.source import Problem, SourceError, parse, top_level
from webapp.tasks.bounds import IndexBounds, Rows

MODULE_BASES = {"nn.Module", "torch.nn.Module", "Module"}
# Patterns for names that suggest the values of a tensor.
MASKS = re.compile(r"mask", re.IGNORECASE)
INDICES = re.compile(r"(^|_)(ids?|idx|index|indices|tokens?|labels?|targets?|positions?)($|_)", re.IGNORECASE)
PLAIN_TYPES = {"int", "float", "bool", "str"}
TENSOR = re.compile(r"\bTensor\b")


@dataclass(frozen=True)
class Parameter:
    """One argument of a constructor or of `forward`."""

    name: str
    annotation: str = ""  # as written
    default: str | None = None  # as written; None if the argument is required
    keyword_only: bool = False

    @property
    def is_tensor(self) -> bool:
        """Return whether an argument of `forward` may be a tensor. Most are, so this is True unless its annotation or default indicates otherwise."""
        if TENSOR.search(self.annotation):
            return True
        words = set(re.findall(r"\w+", self.annotation))
        return not words & PLAIN_TYPES and self.default in (None, "None")

    @property
    def guess(self) -> str:
        """Return the probable content of a tensor with this name: "mask", "indices" or "numbers"."""
        return "mask" if MASKS.search(self.name) else "indices" if INDICES.search(self.name) else "numbers"


@dataclass(frozen=True)
class ModuleClass:
    name: str
    line: int
    about: str  # first line of its docstring
    init: list[Parameter]
    forward: list[Parameter]
    problems: list[Problem] = field(default_factory=list)  # reasons why a form cannot call it

    @property
    def written(self) -> dict[str, list[list[str | None]]]:
        """Return the arguments as written, keyed by method. They identify the argument for which a form value was given."""
        return {
            name: [[p.name, p.annotation, p.default] for p in parameters] for name, parameters in (("init", self.init), ("forward", self.forward))
        }

    @property
    def signature(self) -> str:
        return f"{self.name}({', '.join(p.name if p.default is None else f'{p.name}={p.default}' for p in self.init)})"


@dataclass(frozen=True)
class PlainModule:
    """A source with classes to choose from. `taken` holds the names that a task generated from it would redefine."""

    classes: list[ModuleClass]
    has_torch: bool
    taken: frozenset[str]
    bounds: IndexBounds

    @property
    def written(self) -> str:
        """Return all classes with their arguments as JSON. Two sources with equal results have the same form."""
        return json.dumps({found.name: found.written for found in self.classes}, separators=(",", ":"))

    def rows(self, name: str, given: Mapping[str, str]) -> dict[str, Rows]:
        """Return table sizes, keyed by argument of `forward`.

        An argument used as an index is mapped to the number of rows in the table that it indexes. `given` holds the constructor's arguments.
        """
        return self.bounds.of(name, given)

    def shapes(self, name: str, given: Mapping[str, str]) -> dict[str, str]:
        """Return a shape for each input whose width can be derived from the class's layers."""
        return self.bounds.shapes(name, given)

    def find(self, name: str) -> ModuleClass | None:
        return next((found for found in self.classes if found.name == name), None)

    @property
    def first(self) -> ModuleClass:
        """Return the default class, which is the last one because it usually uses the others."""
        return self.classes[-1]


def is_task(source: str) -> bool:
    """Return whether the source has KernelBench's two functions and therefore needs no wrapper."""
    try:
        names = top_level(parse(source))
    except SourceError:
        return False
    return {"get_inputs", "get_init_inputs"} <= names.keys()


def read_module(source: str) -> PlainModule | None:
    """Return the module's classes, or None if it has none, does not parse, or is already a task."""
    try:
        tree = parse(source)
    except SourceError:
        return None
    names = top_level(tree)
    if {"get_inputs", "get_init_inputs"} <= names.keys():
        return None
    defined = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    classes = [_read_class(node, defined) for node in defined.values() if _is_module(node, defined)]
    if not classes:
        return None
    return PlainModule(classes=classes, has_torch="torch" in names, taken=frozenset(names), bounds=IndexBounds(tree))


def _is_module(node: ast.ClassDef, defined: dict[str, ast.ClassDef], seen: frozenset[str] = frozenset()) -> bool:
    for base in map(ast.unparse, node.bases):
        if base in MODULE_BASES or base.startswith(("nn.", "torch.nn.")):
            return True
        if base in defined and base not in seen and _is_module(defined[base], defined, seen | {base}):
            return True
    return False


def _read_class(node: ast.ClassDef, defined: dict[str, ast.ClassDef]) -> ModuleClass:
    init, forward = _method(node, "__init__", defined), _method(node, "forward", defined)
    problems = []
    if forward is None:
        problems.append(
            Problem(line=node.lineno, message=f"`{node.name}` has no method `forward`", hint="add `def forward(self, x)`, or choose another class")
        )
    for method in filter(None, (init, forward)):
        if method.args.vararg or method.args.kwarg:
            written = ast.unparse(method.args)
            hint = "give every argument a name, or write `get_inputs` and `get_init_inputs` by hand"
            problems.append(Problem(line=method.lineno, message=f"`{method.name}({written})` takes any number of arguments", hint=hint))
    if forward is not None and forward.args.kwonlyargs:
        problems.append(
            Problem(line=forward.lineno, message="`forward` takes arguments by name only", hint="inputs are given in their order: drop the `*`")
        )
    about = (ast.get_docstring(node) or "").strip().split("\n")[0]
    return ModuleClass(node.name, node.lineno, about, _parameters(init), _parameters(forward), problems)


def _method(node: ast.ClassDef, name: str, defined: dict[str, ast.ClassDef], depth: int = 0) -> ast.FunctionDef | None:
    """Return the method, which may be defined by a base class in the same source."""
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == name:
            return item
    for base in map(ast.unparse, node.bases):
        if base in defined and depth < 20:
            return _method(defined[base], name, defined, depth + 1)
    return None


def _parameters(method: ast.FunctionDef | None) -> list[Parameter]:
    if method is None:
        return []
    places = [*method.args.posonlyargs, *method.args.args]
    defaults: list[ast.expr | None] = [None] * (len(places) - len(method.args.defaults)) + list(method.args.defaults)
    found = [_parameter(place, default) for place, default in zip(places, defaults, strict=True)][1:]  # without self
    by_name = zip(method.args.kwonlyargs, method.args.kw_defaults, strict=True)
    return found + [_parameter(place, default, keyword_only=True) for place, default in by_name]


def _parameter(place: ast.arg, default: ast.expr | None, keyword_only: bool = False) -> Parameter:
    annotation = ast.unparse(place.annotation) if place.annotation else ""
    return Parameter(place.arg, annotation, None if default is None else ast.unparse(default), keyword_only)
