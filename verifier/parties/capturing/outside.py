"""Handles state outside the state dict that forward changes. No part of a program may contain a value that such state had during the capture.

Calls show what forward changes, and its source shows what it assigns on paths that these calls did not take. The export of a part shows whether it
reads such state, whether in the part itself, in a helper method or in a submodule.
"""

# sandboxed: watches attributes of the models that tasks define

from __future__ import annotations

import ast
import contextlib
from collections.abc import Collection, Iterator
from types import FunctionType
from typing import Any

import torch

from verifier.parties.capturing.calling import FlatCall
from verifier.parties.capturing.statements import root
from verifier.parties.plain_state import PlainState

ANY = "*"  # any object
CHANGING = frozenset({"append", "extend", "insert", "pop", "remove", "clear", "update", "setdefault", "discard", "popitem", "appendleft", "popleft",
                      "sort", "reverse", "add"})  # fmt: skip
_MISSING = object()


class Used(ValueError):
    """Raised when a part uses the value `name`."""

    def __init__(self, name: str):
        super().__init__(f"it uses {name.removeprefix('self.')}, which forward changes outside the state dict")


class _Refusing:
    """A stand-in for a class attribute that raises `Used` when it is read."""

    def __init__(self, name: str):
        self.name = name

    def __get__(self, *_: Any) -> Any:
        raise Used(self.name)


@contextlib.contextmanager
def unread(plain: PlainState, names: Collection[str], call: FlatCall) -> Iterator[None]:
    """Raises an exception if `call` reads one of the values `names` (in the form of `PlainState.changed`): `NameError` for a variable of the source,
    otherwise `Used`."""
    attributes: dict[int, dict[str, str]] = {}
    classes: list[type] = []
    with contextlib.ExitStack() as stack:
        for name in names:
            if not name.startswith("self."):
                if (place := plain.place(name)) is not None:
                    stack.enter_context(_away(*place, name))
                continue
            path, _, key = name.removeprefix("self.").rpartition(".")
            try:
                module = plain.model.get_submodule(path)
            except AttributeError:  # a module that forward created
                continue
            attributes.setdefault(id(module), {})[key] = name
            if type(module) not in classes and not isinstance(module, torch.jit.ScriptModule):
                classes.append(type(module))
        for owner in classes:
            stack.enter_context(_watched(owner, attributes, call))
        yield


@contextlib.contextmanager
def _away(table: dict[str, Any], key: str, name: str) -> Iterator[None]:
    """Removes a variable of the source, or replaces a class attribute with one that cannot be read."""
    before = table[key]
    if "." in name:
        table[key] = _Refusing(name)
    else:
        del table[key]
    try:
        yield
    finally:
        if "." in name or key not in table:
            table[key] = before


@contextlib.contextmanager
def _watched(owner: type, attributes: dict[int, dict[str, str]], call: FlatCall) -> Iterator[None]:
    """Checks reads of module attributes, but only while forward runs, because an exporter also reads modules."""
    before: Any = owner.__getattribute__
    own = vars(owner).get("__getattribute__", _MISSING)

    def read(self: Any, key: str) -> Any:
        if (found := attributes.get(id(self))) and key in found and call.running:
            raise Used(found[key])
        return before(self, key)

    owner.__getattribute__ = read  # type: ignore[method-assign,assignment]  # replaced while the model is called
    try:
        yield
    finally:
        if own is _MISSING:
            del owner.__getattribute__
        else:
            owner.__getattribute__ = own  # type: ignore[method-assign]  # as it was


def reached(source: ast.Module) -> list[tuple[ast.FunctionDef, str]]:
    """Returns forward and the functions of the source that it refers to, directly or indirectly, each with the class that defines it, if any."""
    functions: dict[str, list[tuple[ast.FunctionDef, str]]] = {}
    for node in ast.walk(source):
        for item in node.body if isinstance(node, (ast.Module, ast.ClassDef)) else ():
            if isinstance(item, ast.FunctionDef):
                functions.setdefault(item.name, []).append((item, node.name if isinstance(node, ast.ClassDef) else ""))
    found: dict[int, tuple[ast.FunctionDef, str]] = {}
    waiting = [*functions.get("forward", []), *functions.get("__call__", [])]
    while waiting:
        tree, owner = waiting.pop()
        if id(tree) in found:
            continue
        found[id(tree)] = tree, owner
        words = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)} | {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
        waiting += [one for word in words & set(functions) if word != "__init__" for one in functions[word]]
    return list(found.values())


def counts(source: ast.Module, name: str) -> bool:
    """Returns whether forward may use a value for anything other than updating it. The effect of a counter, for example, may become visible only
    after many calls."""
    key = name.rpartition(".")[2]

    def uses(tree: ast.AST) -> bool:
        if isinstance(tree, (ast.Assign, ast.AnnAssign)) and any(
            getattr(target, "attr", getattr(target, "id", "")) == key for target in (tree.targets if isinstance(tree, ast.Assign) else [tree.target])
        ):
            return False
        if isinstance(tree, (ast.Attribute, ast.Name)) and isinstance(tree.ctx, ast.Load) and getattr(tree, "attr", getattr(tree, "id", "")) == key:
            return True
        if isinstance(tree, ast.Constant) and tree.value == key:
            return True
        return any(uses(child) for child in ast.iter_child_nodes(tree))

    return any(uses(tree) for tree, _ in reached(source))


def place_of_change(source: ast.Module, name: str) -> int | None:
    """Returns the first line at which forward, or a function that it names, assigns a value or calls one of its methods that changes it."""
    key = name.rpartition(".")[2]
    lines: list[int] = []
    for tree, _ in reached(source):
        for node in (node for node in ast.walk(tree) if isinstance(node, ast.expr)):
            called = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _in_place(node.func.attr)
            inner: Any = node.func.value if called else node  # type: ignore[attr-defined]  # as tested above
            stored = called or isinstance(node, (ast.Attribute, ast.Name, ast.Subscript)) and not isinstance(node.ctx, ast.Load)
            while isinstance(inner, ast.Subscript):
                inner = inner.value
            if stored and getattr(inner, "attr", getattr(inner, "id", "")) == key:
                lines.append(node.lineno)
    return min(lines, default=None)


def assigned_outside(model: torch.nn.Module, source: ast.Module, plain: PlainState) -> set[str]:
    """Returns the values outside the state dict that forward and the functions it names may assign or change in place, whether or not a call did so.
    The names have the form of `PlainState.changed`."""
    found: set[str] = set()
    modules = list(model.named_modules())
    bases = {base.__name__ for _, module in modules for base in type(module).__mro__}
    functions = reached(source)
    of_objects = _changing_objects([tree for tree, owner in functions if owner and owner not in bases])
    for tree, owner in functions:
        for target, method in _targets(tree, of_objects):
            if target.startswith(ANY):
                found |= {name for name in plain.kept if name.startswith("self.") and name.endswith(target.removeprefix(ANY))}
                continue
            names = [target]
            if target.startswith("self."):
                own = (path for path, module in modules if owner in {base.__name__ for base in type(module).__mro__})
                names = [f"self.{path}.{target[5:]}" if path else target for path in own]
            outside = [named for name in names if (named := _outside(plain, name))]
            found |= {named for named in outside if not method or _changes(plain, named, method, of_objects)}
    return found


def _changing_objects(methods: list[ast.FunctionDef]) -> set[str]:
    """Returns the names of those methods that assign attributes of their object, directly or by calling another of them."""
    called = {id(tree): {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and _of_self(n)} for tree in methods}
    found = {tree.name for tree in methods if any(name.startswith("self.") for name, _ in _targets(tree))}
    while more := {tree.name for tree in methods if called[id(tree)] & found} - found:
        found |= more
    return found


def _changes(plain: PlainState, name: str, method: str, of_objects: set[str]) -> bool:
    """Returns whether a call of `method` may change the value of this name in place. `of_objects` holds the methods of the source's own classes that
    change their object."""
    place = plain.place(name)
    value = None if place is None else place[0][place[1]]
    if isinstance(value, (torch.Tensor, torch.nn.Module)):
        return isinstance(value, torch.Tensor) and method.endswith("_")
    return method in CHANGING or method in of_objects


def _targets(tree: ast.FunctionDef, of_objects: Collection[str] = ()) -> set[tuple[str, str]]:
    """Returns the attributes of `self` and the variables of the source that a function assigns, each with an empty string, and those on which it
    calls a method that may change them, with the name of the method. Looks through other names (`layer = self.layer`). An attribute of an unknown
    object becomes `ANY` followed by a dot and its name."""
    shared = {name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names}
    held = {
        node.targets[0].id: ast.unparse(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and _of_self(node.value)
    }
    found: set[tuple[str, str]] = set()
    for node in ast.walk(tree):
        inner: Any = node
        method = ""
        if isinstance(node, ast.Name) and node.id in shared and not isinstance(node.ctx, ast.Load):
            found.add((node.id, ""))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and (_in_place(node.func.attr) or node.func.attr in of_objects):
            inner, method = node.func.value, node.func.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and "__call__" in of_objects:
            inner, method = node.func, "__call__"
        elif not isinstance(node, (ast.Attribute, ast.Subscript)) or isinstance(node.ctx, ast.Load):
            continue
        while isinstance(inner, ast.Subscript):
            inner = inner.value
        first, dot, rest = ast.unparse(inner).partition(".")
        text = f"{held.get(first, first)}{dot}{rest}"
        if text.startswith("self.") and all(word.isidentifier() for word in text.split(".")):
            found.add((text, method))
        elif isinstance(inner, ast.Attribute) and not method:
            found.add((f"{ANY}.{inner.attr}", ""))
    return found


def _of_self(value: ast.expr) -> bool:
    return isinstance(value, ast.Attribute) and all(word.isidentifier() for word in ast.unparse(value).split(".")) and root(value) == "self"


def _in_place(method: str) -> bool:
    """Returns whether a method of this name changes a list, a dict, a set or a tensor."""
    return method in CHANGING or method.endswith("_") and not method.startswith("_")


def _outside(plain: PlainState, name: str) -> str:
    """Returns the name of the value outside the state dict that an assignment to `name` changes; empty if there is none."""
    if not name.startswith("self."):
        return "" if isinstance(plain.source.get(name), (FunctionType, type)) else name
    owner, path = plain.model, "self"
    keys = name.split(".")[1:]
    for at, key in enumerate(keys, start=1):
        path += f".{key}"
        if at < len(keys) and key in owner._modules:
            owner = owner._modules[key]  # type: ignore[assignment]  # the condition above rules out None
            continue
        return "" if key in owner._parameters or owner._buffers.get(key) is not None else path
    return ""
