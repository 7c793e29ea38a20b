"""Finds the functions of a task that contain loops, records their variables before each pass during one call, and replaces them with other
functions."""

# sandboxed: calls the models that tasks define

from __future__ import annotations

import ast
import contextlib
import copy
import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any

import torch

from verifier.parties.capturing.statements import all_blocks
from verifier.parties.capturing.tracing import VISITS, Method, first_line, given_again, is_plain, kept_value, undone
from verifier.parties.plain_state import PlainState, source_of

FINDING = frozenset({"where", "nonzero", "argwhere"})
ADDING = frozenset({"index_add", "index_add_", "index_put", "index_put_", "scatter_add", "scatter_add_", "index_copy", "index_copy_"})
MASKING = FINDING | {"eq", "bool", "any", "index_add", "index_add_"}
BEGIN, PASS, END = "begin_loop__", "begin_pass__", "end_loop__"


@dataclass
class Function:
    """A function that contains loops. `holder` is the class or module namespace to which the function belongs, or None for a library function, to
    which others may hold references."""

    method: Method
    holder: Any
    original: FunctionType
    code: CodeType = field(init=False)

    def __post_init__(self) -> None:
        self.code = self.original.__code__

    @property
    def tree(self) -> ast.FunctionDef:
        return self.method.tree

    def put(self, function: Callable[..., Any]) -> None:
        if self.holder is None:
            self.original.__code__ = self.code if function is self.original else function.__code__
        elif isinstance(self.holder, dict):
            self.holder[self.tree.name] = function
        else:
            setattr(self.holder, self.tree.name, function)

    @property
    def file(self) -> str:
        return self.code.co_filename

    def made(self, tree: ast.FunctionDef) -> Callable[..., Any]:
        """Builds a function from another tree, with the defaults of the original."""
        tree = copy.deepcopy(tree)
        arguments = tree.args
        arguments.defaults = [ast.Constant(None) for _ in arguments.defaults]
        arguments.kw_defaults = [default and ast.Constant(None) for default in arguments.kw_defaults]
        tree.returns = None
        for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *filter(None, [arguments.vararg, arguments.kwarg])]:
            argument.annotation = None
        made: Any = self.method.compiled(ast.fix_missing_locations(tree), self.file)
        made.__defaults__, made.__kwdefaults__ = self.original.__defaults__, self.original.__kwdefaults__
        return made  # type: ignore[no-any-return]  # a function made from the tree


@dataclass
class Visit:
    """One run of a loop. `before` holds the variables at its start, `passes` the variables before each of its first passes, and `inner` the loops
    that ran inside it."""

    item: ast.For
    function: Function
    before: dict[str, Any]
    passes: list[dict[str, Any]] = field(default_factory=list)
    inner: list[Visit] = field(default_factory=list)

    @property
    def place(self) -> tuple[str, int]:
        return self.function.file, self.item.lineno


def functions_of(model: torch.nn.Module, source: str) -> list[Function]:
    """Returns the functions of the module and the methods of its classes that contain loops, along with library functions whose loops may iterate
    over experts."""
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
    return [*found, *_of_libraries(model)]


def _of_libraries(model: torch.nn.Module) -> list[Function]:
    """Returns the forwards of library modules that search for rows in a loop."""
    found: dict[int, Function] = {}
    for cls in {type(module) for module in model.modules()}:
        function = inspect.unwrap(cls.forward)
        code = getattr(function, "__code__", None)
        home = sys.modules.get(cls.__module__)
        if code is None or code.co_freevars or home is None or cls.__module__.startswith("torch.") or not FINDING & set(code.co_names):
            continue
        if function.__globals__ is not vars(home) or function.__globals__ is source_of(model):
            continue
        try:
            text = inspect.getsource(home)
        except (OSError, TypeError):  # a module without source
            continue
        owners = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef)]
        for owner, item in ((one, item) for one in owners for item in one.body if isinstance(item, ast.FunctionDef)):
            if item.name == code.co_name and first_line(item) == code.co_firstlineno and is_plain(item) and loops_in(item):
                found[id(function)] = Function(Method(model, owner.name, item, function.__globals__), None, function)
    return list(found.values())


def loops_in(tree: ast.FunctionDef) -> list[ast.For]:
    """Returns a function's loops, excluding loops from which it can exit early. Loops over the model's own layers are also excluded, unless the
    layers could be experts."""
    loops = [item for block in all_blocks(tree.body) for item in block if isinstance(item, ast.For)]
    statements = [item for item in loops if routes(item) or not _over_members(item.iter)]
    return [item for item in statements if not any(isinstance(node, ast.Return) for node in ast.walk(item))]


def routes(item: ast.For) -> bool:
    """Returns whether a loop may iterate over experts: whether it finds the true positions of a mask, or builds a mask by comparison, and changes
    rows of a tensor."""
    inside = [node for one in item.body for node in ast.walk(one)]
    tests = [node.test for node in inside if isinstance(node, (ast.If, ast.IfExp, ast.While, ast.Assert))]
    plain = {id(part) for test in tests for part in parts_of_test(test)}
    finds = any(isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MASKING for node in inside)
    masks = finds or any(isinstance(node, ast.Compare) and id(node) not in plain for node in inside)
    sets = any(isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) for node in inside)
    return masks and (sets or any(isinstance(node, ast.Attribute) and node.attr in ADDING for node in inside))


def parts_of_test(test: ast.expr) -> Iterator[ast.expr]:
    """Yields the comparisons in a test."""
    if isinstance(test, ast.BoolOp):
        for value in test.values:
            yield from parts_of_test(value)
    elif isinstance(test, ast.UnaryOp):
        yield from parts_of_test(test.operand)
    else:
        yield test


def _over_members(over: ast.expr) -> bool:
    names = {node.id for node in ast.walk(over) if isinstance(node, ast.Name)}
    return "self" in names and names <= {"self", "enumerate", "zip", "reversed"} and not isinstance(over, ast.Subscript)


@contextlib.contextmanager
def replaced(functions: dict[int, Callable[..., Any]], every: list[Function]) -> Iterator[None]:
    """Replaces some functions, given by their positions in `every`, while the context is open."""
    try:
        for at, function in functions.items():
            every[at].put(function)
        yield
    finally:
        for at in functions:
            every[at].put(every[at].original)


def watched(model: torch.nn.Module, functions: list[Function], args: tuple[Any, ...], kwargs: dict[str, Any], plain: PlainState) -> list[Visit]:
    """Runs one call and restores the model's state afterwards. Returns the outermost loops that ran."""
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
        marked[at] = function.made(tree)
    tables = tables_of(functions)
    for names in tables:
        names.update({BEGIN: begin, PASS: begin_pass, END: end})
    try:
        with undone(model, plain), replaced(marked, functions):
            again, words = given_again(args, kwargs, torch.Tensor.clone)
            model.forward(*again, **words)
    finally:
        for names in tables:
            for name in (BEGIN, PASS, END):
                del names[name]
    return roots


def tables_of(functions: list[Function]) -> list[dict[str, Any]]:
    """Returns the namespaces from which the functions read names, one per module."""
    return list({id(function.method.names): function.method.names for function in functions}.values())


def _copied(values: dict[str, Any]) -> dict[str, Any]:
    return {name: kept_value(value) for name, value in values.items()}


def _line(text: str, place: ast.stmt) -> ast.stmt:
    return ast.fix_missing_locations(ast.copy_location(ast.parse(text).body[0], place))
