"""Recognises the forms of loops that can be rolled up: what the loop iterates over, lists that grow by one value per pass, and tensors that the
passes fill."""

# sandboxed: reads sources of the models that tasks define

from __future__ import annotations

import ast
import copy
from dataclasses import dataclass, field
from typing import Any

import torch

from verifier.parties.capturing.loop_nodes import Unlike

AFFINE = (ast.Constant, ast.BinOp, ast.Add, ast.Sub, ast.UnaryOp, ast.USub, ast.Slice, ast.Tuple, ast.Name, ast.Load)
MOVES = frozenset({"transpose", "permute", "movedim", "swapaxes", "t", "contiguous", "unbind", "split", "chunk", "flip", "T", "mT"})
NUMBER = "number_of_pass__"


@dataclass
class Form:
    """The form of a loop. `number` is the integer variable that changes with each pass, and `passes` lists its values. `body` holds the statements of
    a pass, `ahead` statements that run once before the loop, and `over` the values that these set."""

    number: str
    passes: list[int]
    body: list[ast.stmt]
    ahead: list[ast.stmt] = field(default_factory=list)
    over: dict[str, Any] = field(default_factory=dict)


def form_of(item: ast.For, names: dict[str, Any], before: dict[str, Any]) -> Form:
    """Analyses a loop. Raises `Unlike` for a loop over anything but numbers, tensors, or lists of similar tensors."""
    form = Form("", [], copy.deepcopy(item.body))
    steps = _steps(item.target, item.iter, form, names, before)
    lengths = {len(value) for value in form.over.values()}
    if not form.number:
        form.number = NUMBER
    if not form.passes:
        form.passes = list(range(min(lengths)))
    elif lengths and form.passes != list(range(min(*lengths, len(form.passes)))):
        raise Unlike("it iterates over numbers and tensors of different lengths")
    for step in steps:
        for node in ast.walk(step):
            if isinstance(node, ast.Name) and node.id == NUMBER:
                node.id = form.number
    form.body = [*(ast.fix_missing_locations(ast.copy_location(step, item)) for step in steps), *form.body]
    form.ahead = [ast.fix_missing_locations(ast.copy_location(step, item)) for step in form.ahead]
    return form


def _steps(target: ast.expr, over: ast.expr, form: Form, names: dict[str, Any], before: dict[str, Any]) -> list[ast.stmt]:
    """Returns statements that set the variables of a pass. Stores the pass numbers and what the loop iterates over in `form`."""
    word = over.func.id if isinstance(over, ast.Call) and isinstance(over.func, ast.Name) else ""
    inner = over.args if isinstance(over, ast.Call) and not over.keywords and not any(isinstance(a, ast.Starred) for a in over.args) else []
    pair = target.elts if isinstance(target, ast.Tuple) else []
    if isinstance(target, ast.Name) and (
        word == "range" or word == "reversed" and inner and isinstance(inner[0], ast.Call) and _calls_range(inner[0])
    ):
        if form.number:
            raise Unlike("it counts twice")
        form.number, form.passes = target.id, list(value_of(over, names, before))
        return []
    if word == "enumerate" and len(inner) == 1 and len(pair) == 2 and isinstance(pair[0], ast.Name) and not form.number:
        form.number = pair[0].id
        return _steps(pair[1], inner[0], form, names, before)
    if word == "zip" and inner and len(inner) == len(pair):
        return [step for one, part in zip(pair, inner, strict=True) for step in _steps(one, part, form, names, before)]
    value, text = _sequence(over, names, before), f"over_{len(form.over) + 1}__"
    form.over[text] = value
    moved = ast.unparse(over)
    if isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute) and over.func.attr == "unbind" and not word:
        base, axis = (over.args[0], over.args[1:]) if ast.unparse(over.func.value) == "torch" else (over.func.value, over.args)
        axis = axis or [keyword.value for keyword in over.keywords if keyword.arg == "dim"]
        moved = f"({ast.unparse(base)}).movedim({ast.unparse(axis[0]) if axis else 0}, 0)"
    elif not isinstance(value_of(over, names, before), torch.Tensor):
        moved = f"torch.stack(list({moved}))"
    form.ahead.append(ast.parse(f"{text} = {moved}").body[0])
    step = ast.parse(f"__target = {text}[{NUMBER}]").body[0]
    assert isinstance(step, ast.Assign)
    step.targets = [copy.deepcopy(target)]
    return [step]


def _calls_range(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == "range"


def value_of(tree: ast.expr, names: dict[str, Any], before: dict[str, Any]) -> Any:
    return eval(compile(ast.fix_missing_locations(ast.Expression(copy.deepcopy(tree))), "<loop>", "eval"), names, before)


def _sequence(over: ast.expr, names: dict[str, Any], before: dict[str, Any]) -> torch.Tensor:
    """Returns what a loop iterates over as one tensor. Its expression only reads variables and moves elements, so it may safely run again."""
    for node in ast.walk(over):
        calls = isinstance(node, ast.Call) and not (isinstance(node.func, ast.Attribute) and node.func.attr in MOVES)
        if calls or not isinstance(node, (ast.expr, ast.expr_context, ast.unaryop, ast.keyword)):
            raise Unlike("it goes over something else than numbers or tensors")
    value = value_of(over, names, before)
    if isinstance(value, (list, tuple)) and value and all(isinstance(one, torch.Tensor) for one in value):
        if any(one.shape != value[0].shape or one.dtype != value[0].dtype for one in value) or "torch" not in names:
            raise Unlike("it iterates over tensors of different shapes or types")
        return torch.stack(list(value))
    if not isinstance(value, torch.Tensor) or not value.dim():
        raise Unlike("it goes over something else than numbers or tensors")
    return value


def growing(body: list[ast.stmt], before: dict[str, Any]) -> dict[str, str]:
    """Finds lists to which each pass appends one value. Replaces the appending statement with one that sets a variable, and returns that variable for
    each list."""
    found: dict[str, str] = {}
    for at, one in enumerate(body):
        owner, value = _appended(one)
        if isinstance(owner, ast.Name) and value is not None and type(before.get(owner.id)) is list and owner.id not in found:
            found[owner.id] = f"kept_{owner.id}__"
            body[at] = ast.fix_missing_locations(ast.copy_location(ast.Assign([ast.Name(found[owner.id], ast.Store())], value), one))
    if any(isinstance(node, ast.Name) and node.id in found for one in body for node in ast.walk(one)):
        raise Unlike("the loop reads a list that it extends")
    return found


def _appended(one: ast.stmt) -> tuple[ast.expr | None, ast.expr | None]:
    """Returns the list and the value of `ys.append(value)` or `ys += [value]`."""
    if isinstance(one, ast.AugAssign) and isinstance(one.op, ast.Add) and isinstance(one.value, ast.List) and len(one.value.elts) == 1:
        return one.target, None if isinstance(one.value.elts[0], ast.Starred) else one.value.elts[0]
    call = one.value if isinstance(one, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "append" and len(call.args) == 1:
        return call.func.value, call.args[0]
    return None, None


@dataclass
class Filled:
    """A tensor in which each pass sets one position, `out[:, t] = value`. `kept` is the variable that holds the value, which must have `shape` and
    `dtype`. `text` is a statement that sets all positions together from the list of values; `{}` is the placeholder for that list."""

    kept: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    text: str


def filled(body: list[ast.stmt], number: str, passes: list[int], before: dict[str, Any]) -> dict[str, Filled]:
    """Returns the tensors that are filled but not read, by name. Replaces each filling statement with one that sets a variable."""
    found: dict[str, Filled] = {}
    for at, one in enumerate(body):
        target = one.targets[0] if isinstance(one, ast.Assign) and len(one.targets) == 1 else None
        if not isinstance(target, ast.Subscript) or not isinstance(target.value, ast.Name):
            continue
        name = target.value.id
        uses = sum(isinstance(node, ast.Name) and node.id == name for other in body for node in ast.walk(other))
        if uses == 1 and isinstance(out := before.get(name), torch.Tensor):
            found[name] = _filled(name, target, number, passes, out)
            assert isinstance(one, ast.Assign)
            body[at] = ast.fix_missing_locations(ast.copy_location(ast.Assign([ast.Name(found[name].kept, ast.Store())], one.value), one))
    return found


def _filled(name: str, target: ast.Subscript, number: str, passes: list[int], out: torch.Tensor) -> Filled:
    parts = list(target.slice.elts) if isinstance(target.slice, ast.Tuple) else [target.slice]
    own = [at for at, part in enumerate(parts) if any(isinstance(node, ast.Name) and node.id == number for node in ast.walk(part))]
    others = [part for at, part in enumerate(parts) if at not in own]
    whole = ast.Slice(None, None, None)
    plain = all(
        isinstance(part, ast.Constant) and (part.value is ... or type(part.value) is int) or ast.dump(part) == ast.dump(whole) for part in others
    )
    if len(own) != 1 or isinstance(parts[own[0]], ast.Slice) or not plain:
        raise Unlike("a tensor is filled at positions that do not follow from the pass number")
    code = compile(ast.fix_missing_locations(ast.Expression(copy.deepcopy(parts[own[0]]))), "<loop>", "eval")
    places = [eval(code, {"__builtins__": {}}, {number: value}) for value in passes]
    steps = {b - a for a, b in zip(places, places[1:], strict=False)}
    if len(steps) != 1 or min(places) < 0 or not all(type(place) is int for place in places):
        raise Unlike("a tensor is filled at positions that are not evenly spaced")
    step = steps.pop()
    if not step:
        raise Unlike("a tensor is filled at only one position")
    wide = [isinstance(part, ast.Slice) for part in parts]
    after_dots = any(isinstance(part, ast.Constant) and part.value is ... for part in parts[: own[0]])
    axis = -1 - sum(wide[own[0] + 1 :]) if after_dots else sum(wide[: own[0]])
    texts = [ast.unparse(part) for part in parts]
    texts[own[0]] = f"{min(places)}:{max(places) + 1}:{abs(step)}"
    first = [*texts]
    first[own[0]] = str(places[0])
    shape = tuple(eval(f"out[{', '.join(first)}]", {"out": out}).shape)
    values = "list({})[::-1]" if step < 0 else "list({})"
    return Filled(f"set_{name}__", shape, out.dtype, f"{name}[{', '.join(texts)}] = torch.stack({values}, {axis})")


def only_indexes(body: list[ast.stmt], variable: str) -> bool:
    """Returns whether the pass number is read only in indices, where it may be added to or subtracted from a constant."""
    uses = sum(isinstance(node, ast.Name) and node.id == variable for one in body for node in ast.walk(one))
    for one in body:
        for index in (node.slice for node in ast.walk(one) if isinstance(node, ast.Subscript)):
            for part in index.elts if isinstance(index, ast.Tuple) else [index]:
                inner = list(ast.walk(part))
                names = [node.id for node in inner if isinstance(node, ast.Name)]
                if variable in names and set(names) == {variable} and all(isinstance(node, AFFINE) for node in inner):
                    uses -= names.count(variable)
    return uses == 0
