"""The functions of a task that have loops: what they hold before each pass is watched in one call, and others can stand in their place."""

# sandboxed: calls the models that tasks define

from __future__ import annotations

import ast
import contextlib
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

import torch

from verifier.parties.capturing.statements import all_blocks
from verifier.parties.capturing.tracing import VISITS, Method, first_line, given_again, is_plain, kept_value, undone
from verifier.parties.plain_state import PlainState, source_of

BEGIN, PASS, END = "begin_loop__", "begin_pass__", "end_loop__"


@dataclass
class Function:
    """`holder`: the class, or the names of the module, that it is a member of."""

    method: Method
    holder: Any
    original: FunctionType

    @property
    def tree(self) -> ast.FunctionDef:
        return self.method.tree

    def put(self, function: Callable[..., Any]) -> None:
        if isinstance(self.holder, dict):
            self.holder[self.tree.name] = function
        else:
            setattr(self.holder, self.tree.name, function)

    def made(self, tree: ast.FunctionDef, file: str) -> Callable[..., Any]:
        """A function of another tree, with the defaults of the original."""
        tree = copy.deepcopy(tree)
        arguments = tree.args
        arguments.defaults = [ast.Constant(None) for _ in arguments.defaults]
        arguments.kw_defaults = [default and ast.Constant(None) for default in arguments.kw_defaults]
        tree.returns = None
        for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *filter(None, [arguments.vararg, arguments.kwarg])]:
            argument.annotation = None
        made: Any = self.method.compiled(ast.fix_missing_locations(tree), file)
        made.__defaults__, made.__kwdefaults__ = self.original.__defaults__, self.original.__kwdefaults__
        return made  # type: ignore[no-any-return]


@dataclass
class Visit:
    """One run of a loop. `before`: variables when it began; `passes`: those before its first passes; `inner`: loops that ran within it."""

    item: ast.For
    function: Function
    before: dict[str, Any]
    passes: list[dict[str, Any]] = field(default_factory=list)
    inner: list[Visit] = field(default_factory=list)


def functions_of(model: torch.nn.Module, source: str) -> list[Function]:
    """Returns the functions of the module, and the methods of its classes, that have loops."""
    names = source_of(model)
    found = []
    holder: Any
    for node in ast.parse(source.removeprefix("\ufeff")).body:
        owner, holder, members = "", names, [node]
        if isinstance(node, ast.ClassDef):
            owner, holder, members = node.name, names.get(node.name), node.body
        table = holder if isinstance(holder, dict) else vars(holder) if isinstance(holder, type) else {}
        for item in members:
            function = table.get(item.name) if isinstance(item, ast.FunctionDef) else None
            if not isinstance(item, ast.FunctionDef) or not isinstance(function, FunctionType) or function.__globals__ is not names:
                continue
            whole = function.__code__.co_firstlineno == first_line(item) and set(function.__code__.co_freevars) <= {"__class__"}
            if whole and is_plain(item) and loops_in(item):
                found.append(Function(Method(model, owner, item, names), holder, function))
    return found


def loops_in(tree: ast.FunctionDef) -> list[ast.For]:
    """Loops of a function that it does not leave from within, and that do not go over the model's own layers."""
    statements = [item for block in all_blocks(tree.body) for item in block if isinstance(item, ast.For) and not _over_members(item.iter)]
    return [item for item in statements if not any(isinstance(node, ast.Return) for node in ast.walk(item))]


def _over_members(over: ast.expr) -> bool:
    names = {node.id for node in ast.walk(over) if isinstance(node, ast.Name)}
    return "self" in names and names <= {"self", "enumerate", "zip", "reversed"} and not isinstance(over, ast.Subscript)


@contextlib.contextmanager
def replaced(functions: dict[int, Callable[..., Any]], every: list[Function]) -> Iterator[None]:
    """Meanwhile others stand in the place of some functions, told by their places in `every`."""
    try:
        for at, function in functions.items():
            every[at].put(function)
        yield
    finally:
        for at in functions:
            every[at].put(every[at].original)


def watched(
    model: torch.nn.Module, functions: list[Function], args: tuple[Any, ...], kwargs: dict[str, Any], plain: PlainState, file: str
) -> list[Visit]:
    """Runs one call, after which the model's state is as before. Returns the loops that ran in no other loop."""
    roots: list[Visit] = []
    open_visits: list[Visit] = []
    known: dict[int, tuple[ast.For, Function]] = {}

    def begin(key: int, values: dict[str, Any]) -> None:
        visit = Visit(*known[key], _copied(values))
        (open_visits[-1].inner if open_visits else roots).append(visit)
        open_visits.append(visit)

    def begin_pass(values: dict[str, Any]) -> None:
        if len(open_visits[-1].passes) < VISITS:
            open_visits[-1].passes.append(_copied(values))

    def end(key: int) -> None:
        while open_visits and id(open_visits.pop().item) != key:
            pass

    marked: dict[int, Callable[..., Any]] = {}
    for at, function in enumerate(functions):
        tree = copy.deepcopy(function.tree)
        for item, twin in zip(loops_in(function.tree), loops_in(tree), strict=True):
            known[id(item)] = item, function
            block, place = next((block, n) for block in all_blocks(tree.body) for n, one in enumerate(block) if one is twin)
            twin.body.insert(0, _line(f"{PASS}(locals())", twin))
            block[place : place + 1] = [_line(f"{BEGIN}({id(item)}, locals())", twin), twin, _line(f"{END}({id(item)})", twin)]
        marked[at] = function.made(tree, file)
    names = source_of(model)
    names.update({BEGIN: begin, PASS: begin_pass, END: end})
    try:
        with undone(model, plain), replaced(marked, functions):
            again, words = given_again(args, kwargs, torch.Tensor.clone)
            model.forward(*again, **words)
    finally:
        for name in (BEGIN, PASS, END):
            del names[name]
    return roots


def _copied(values: dict[str, Any]) -> dict[str, Any]:
    return {name: kept_value(value) for name, value in values.items()}


def _line(text: str, place: ast.stmt) -> ast.stmt:
    return ast.fix_missing_locations(ast.copy_location(ast.parse(text).body[0], place))
