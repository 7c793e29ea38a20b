"""Runs a forward as plain Python and records its variables before each statement, which are the arguments that a run of statements would receive."""

# sandboxed: calls the models that tasks define

from __future__ import annotations

import ast
import contextlib
import copy
import inspect
import linecache
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from types import CellType, FunctionType
from typing import Any

import torch

from verifier.parties.capturing.calling import leaves_of, rebuild
from verifier.parties.capturing.exporting.settings import kept_settings, settings
from verifier.parties.capturing.statements import COMPOUND, all_blocks, blocks_of, under_self, unsuper
from verifier.parties.plain_state import PlainState, lasting
from verifier.private_names import mangle

VISITS = 3  # maximum number of recorded visits of each statement
PART_FILE = "<part of forward>"
_SEEN = "__seen__"


@dataclass
class Method:
    """A method of a model: its syntax tree, and the information needed to compile parts of it."""

    model: torch.nn.Module
    owner: str  # the class that contains the method; empty for a function of the module
    tree: ast.FunctionDef
    names: dict[str, Any]  # the module's namespace

    def compiled(self, tree: ast.FunctionDef, file: str = PART_FILE) -> Callable[..., Any]:
        """Compiles a function as if it were defined in the class, without its decorators; `self` is its first parameter."""
        tree = copy.deepcopy(tree)
        tree.decorator_list = []
        unsuper(tree, self.owner)
        if self.owner:
            mangle(tree, self.owner)
        module = ast.fix_missing_locations(ast.Module([tree], []))
        space: dict[str, Any] = {}
        exec(compile(module, file, "exec"), self.names, space)
        made: Callable[..., Any] = space[tree.name]
        return made


def method_of(model: torch.nn.Module, source: str) -> Method | None:
    """Returns the model's forward, or None if it is not in the task's source or if its behaviour depends on more than its statements (because of
    decorators, or because it is a generator)."""
    function = inspect.unwrap(type(model).forward)
    code = getattr(function, "__code__", None)
    if code is None or "forward" in vars(model):
        return None
    for owner in [node for node in ast.walk(under_self(ast.parse(source.removeprefix("\ufeff")))) if isinstance(node, ast.ClassDef)]:
        for item in owner.body:
            if isinstance(item, ast.FunctionDef) and item.name == code.co_name == "forward" and code.co_firstlineno == first_line(item):
                return Method(model, owner.name, item, function.__globals__) if is_plain(item) else None
    return None


def first_line(item: ast.FunctionDef) -> int:
    return min([item.lineno, *(decorator.lineno for decorator in item.decorator_list)])


def is_plain(tree: ast.FunctionDef) -> bool:
    grads = any(isinstance(n, ast.Attribute) and n.attr in ("grad", "backward", "set_grad_enabled") for n in ast.walk(tree))
    harmless = ("no_grad", "inference_mode", *(() if grads else ("enable_grad",)))
    hard = (ast.Yield, ast.YieldFrom, ast.Await, ast.Nonlocal)
    plain = not any(isinstance(n, hard) or _by_name(n) for n in ast.walk(tree))
    return plain and all(any(word in ast.unparse(d) for word in harmless) for d in tree.decorator_list)


def _by_name(node: ast.AST) -> bool:
    """Returns whether a call may read any variable of the function, such as those within a part."""
    name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
    return name in ("locals", "eval", "exec") or name in ("vars", "dir") and not node.args  # type: ignore[attr-defined]  # a call, as it has a name


@dataclass
class Trace:
    """The variables before each of the first visits of each statement, keyed by the statement's identity. `elsewise` holds the statements that were
    reached under other global settings than the first one. `changed` names the values outside the state dict that the call changed."""

    visits: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    elsewise: set[int] = field(default_factory=set)
    changed: list[str] = field(default_factory=list)
    error: Exception | None = None

    def at(self, item: ast.stmt) -> dict[str, Any] | None:
        found = self.visits.get(id(item))
        return found[0] if found else None


def observed(
    method: Method, tree: ast.FunctionDef, args: tuple[Any, ...], kwargs: dict[str, Any], plain: PlainState, changed: Callable[[torch.Tensor], Any]
) -> Trace:
    """Traces one call with tensors that `changed` derives from the given ones, and restores the model's state afterwards."""
    made, words = given_again(args, kwargs, changed)
    with undone(method.model, plain):
        trace = traced(method, tree, made, words)
        trace.changed = plain.changed()
        return trace


def given_again(args: tuple[Any, ...], kwargs: dict[str, Any], changed: Callable[[torch.Tensor], Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the arguments of a call with tensors that `changed` derives from the given ones."""
    values = [*args, *kwargs.values()]
    tensors = iter(derived([leaf for value in values for _, leaf in leaves_of(value, "") if isinstance(leaf, torch.Tensor)], changed))
    made = [rebuild(value, tensors) for value in values]
    return tuple(made[: len(args)]), dict(zip(kwargs, made[len(args) :], strict=True))


def derived(tensors: list[torch.Tensor], changed: Callable[[torch.Tensor], torch.Tensor]) -> list[torch.Tensor]:
    """Applies `changed` to tensors. Tensors that share memory still share it afterwards, because an in-place operation changes all of them, and
    tensors with gaps in memory keep the gaps."""
    places = [tensor.untyped_storage()._cdata if tensor.layout is torch.strided else None for tensor in tensors]
    memory: dict[int, torch.Tensor] = {}
    found = []
    for tensor, place in zip(tensors, places, strict=True):
        if place is None or places.count(place) == 1 and tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size():
            found.append(changed(tensor))
            continue
        if place not in memory:
            memory[place] = changed(tensor.detach().new_empty(0).set_(tensor.untyped_storage()))
        storage = memory[place].untyped_storage()
        found.append(tensor.detach().new_empty(0).set_(storage, tensor.storage_offset(), tensor.size(), tensor.stride()))
    return found


@contextlib.contextmanager
def undone(model: torch.nn.Module, plain: PlainState) -> Iterator[None]:
    """Restores the model's state on exit."""
    state = {name: value.clone() for name, value in lasting(model).items()}
    try:
        yield
    finally:
        plain.restore()
        for name, value in lasting(model).items():
            if name in state:
                value.copy_(state[name])


def traced(method: Method, tree: ast.FunctionDef, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Trace:
    """Traces one call of `tree`, a version of the model's forward. If it raises an exception, the trace holds it along with everything recorded
    before."""
    trace = Trace()
    marked = copy.deepcopy(tree)
    known = dict(zip((id(node) for node in ast.walk(marked)), ast.walk(tree), strict=True))
    for block in list(all_blocks(marked.body)):
        for at in range(len(block) - 1, -1, -1):
            original = known[id(block[at])]
            block.insert(at, ast.copy_location(_look(id(original)), block[at]))

    before = settings()

    def seen(key: int, values: dict[str, Any]) -> None:
        if settings() != before:
            trace.elsewise.add(key)
        visits = trace.visits.setdefault(key, [])
        if len(visits) < VISITS:
            visits.append({name: kept_value(value) for name, value in values.items()})

    method.names[_SEEN] = seen
    try:
        with kept_settings():
            method.compiled(marked)(method.model, *args, **kwargs)
    except Exception as error:
        trace.error = error
    finally:
        del method.names[_SEEN]
        linecache.checkcache(PART_FILE)
    return trace


def _look(key: int) -> ast.stmt:
    values = ast.Call(ast.Name("locals", ast.Load()), [], [])
    return ast.Expr(ast.Call(ast.Name(_SEEN, ast.Load()), [ast.Constant(key), values], []))


def kept_value(value: Any) -> Any:
    """Copies a value in its current form, because later statements may change its size or the contents of a list."""
    if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter):
        return value.detach()
    if type(value) in (list, dict):
        return copy.copy(value)
    return value


def shape_of(value: Any, depth: int = 0) -> Any:
    """Returns the properties that must match if one capture of statements is to serve several visits: the sizes and types of tensors, and the values
    of everything else."""
    if isinstance(value, torch.Tensor):
        return (tuple(value.shape), value.dtype)
    if depth < 6 and isinstance(value, (list, tuple)):
        return (type(value), *(shape_of(item, depth + 1) for item in value))
    if depth < 6 and isinstance(value, dict):
        return (type(value), *((key, shape_of(item, depth + 1)) for key, item in value.items()))
    if isinstance(value, Enum):
        return (type(value), value.name)
    if value is None or isinstance(value, (bool, int, float, str, torch.dtype, torch.device)):
        return (type(value), value)
    if depth < 6 and isinstance(value, FunctionType):  # a function defined in forward is created anew in each call
        return (value.__code__, shape_of(value.__defaults__, depth + 1), *(_cell(cell, depth + 1) for cell in value.__closure__ or ()))
    return id(value) if isinstance(value, torch.nn.Module) or callable(value) else type(value)


def _cell(cell: CellType, depth: int) -> Any:
    try:
        return shape_of(cell.cell_contents, depth)
    except ValueError:  # not assigned yet
        return None


def statements_within(items: list[ast.stmt]) -> list[ast.stmt]:
    """Returns all statements of a block, including nested ones."""
    found = []
    for item in items:
        found.append(item)
        if isinstance(item, COMPOUND):
            for block in blocks_of(item):
                found += statements_within(block)
    return found
