"""Determines what a loop over experts iterates over, and what is known in advance about the experts' rows, by analysing the statements that compute
them."""

# sandboxed: reads sources of the models that tasks define

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

import torch

from verifier.parties.capturing.loop_forms import value_of
from verifier.parties.capturing.loop_nodes import Unlike
from verifier.parties.capturing.loop_sites import Visit, parts_of_test
from verifier.parties.capturing.routing import Counts, Number, Presence
from verifier.parties.capturing.statements import all_blocks, loaded

MOST_EXPERTS = 512
FIND = frozenset({"nonzero", "unique", "where", "argwhere"})
COUNT = frozenset({"bincount", "sum", "histc", "count_nonzero"})
PURE = FIND | COUNT | frozenset({
    "any", "greater", "gt", "ne", "flatten", "view", "reshape", "squeeze", "amax", "max", "to", "long", "int", "bool", "tolist", "cpu", "numpy",
    "contiguous", "detach", "one_hot", "permute", "transpose", "ravel", "torch", "nn", "functional", "F", "int64", "item",
})  # fmt: skip
SIZES = frozenset({"shape", "size", "numel", "nelement"})
FIXED = frozenset({"range", "enumerate", "zip", "len", "reversed", "list", "tuple", "size", "children", "values", "items", "keys", "int", "tolist",
                   "cpu", "numpy"})  # fmt: skip


def targets_of(item: ast.For) -> set[str]:
    return {node.id for node in ast.walk(item.target) if isinstance(node, ast.Name)}


def items_of(item: ast.For, visit: Visit, before: dict[str, Any]) -> tuple[list[Any], bool]:
    """Returns the items over which the loop iterates, and whether the only thing known about them is that their experts have rows. Raises
    `Unlike`."""
    value = value_of(item.iter, visit.function.method.names, before)
    if isinstance(value, torch.Tensor) and (value.dim() > 2 or value.dim() == 2 and value.shape[1] != 1):
        raise Unlike("it goes over something else than numbers or experts")
    if isinstance(value, torch.Tensor) or not _is_fixed(item.iter, visit, 8):
        if isinstance(value, (range, enumerate, zip)) or not comes_of(item.iter, FIND, visit):
            raise Unlike("the number of its passes depends on values other than which experts have rows")
        return [Number(0), Number(1)], True
    if hasattr(value, "__next__") and not isinstance(item.iter, ast.Call):
        raise Unlike("it iterates over something that can be iterated over only once")
    items = list(value)
    if not 2 <= len(items) <= MOST_EXPERTS:
        raise Unlike("it has only one pass, or too many")
    for at, one in enumerate(items):
        _alike(items[0], items[1], one, at)
    return items, False


def _alike(first: Any, second: Any, one: Any, at: int) -> None:
    """Raises `Unlike` if the item of pass `at` does not follow from the items of the first two passes."""
    if isinstance(first, tuple) and isinstance(one, tuple) and len(first) == len(one):
        for a, b, c in zip(first, second, one, strict=True):
            _alike(a, b, c, at)
    elif isinstance(first, torch.nn.Module) and isinstance(one, torch.nn.Module):
        if not same_module(first, one):
            raise Unlike("its experts are not alike")
    elif isinstance(first, Presence) and isinstance(one, Presence):
        return
    elif type(first) is not int or type(one) is not int or second != first + 1 or one != first + at:
        raise Unlike("it goes over something else than numbers or experts")


def same_module(one: Any, other: Any) -> bool:
    """Returns whether two modules compute the same function apart from the values of their weights."""
    if type(one) is not type(other) or list(one._modules) != list(other._modules):
        return False
    for a, b in ((one._parameters, other._parameters), (one._buffers, other._buffers)):
        if list(a) != list(b) or any(
            (x is None) != (y is None) or x is not None and (x.shape, x.dtype) != (y.shape, y.dtype)
            for x, y in zip(a.values(), b.values(), strict=True)
        ):
            return False
    mine, others = (
        {key: value for key, value in vars(module).items() if key not in ("_parameters", "_buffers", "_modules")} for module in (one, other)
    )
    return _same(mine, others, 4) and all(same_module(a, b) for a, b in zip(one._modules.values(), other._modules.values(), strict=True))


def _same(one: Any, other: Any, depth: int) -> bool:
    if one is other:
        return True
    if type(one) is not type(other) or not depth:
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(_same(value, other[key], depth - 1) for key, value in one.items())
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(_same(a, b, depth - 1) for a, b in zip(one, other, strict=True))
    if isinstance(one, (int, float, str, bool, set, frozenset, torch.dtype, torch.device)):
        return bool(one == other)
    return getattr(one, "__code__", one) is getattr(other, "__code__", other) and not getattr(one, "__closure__", None)


def counts_of(names: list[str], visit: Visit, before: dict[str, Any]) -> dict[str, Counts]:
    """Returns the variables that hold the number of rows per expert. A pass may only compare them with zero."""
    found: dict[str, Counts] = {}
    for name in names:
        value = before[name]
        plain = isinstance(value, (list, tuple)) and len(value) > 1 and all(type(one) is int for one in value)
        tensor = isinstance(value, torch.Tensor) and value.dim() == 1 and not value.is_floating_point() and len(value) > 1
        if (plain or tensor) and comes_of(ast.Name(name, ast.Load()), COUNT, visit):
            found[name] = Counts(Presence() for _ in value)
    return found


def _is_fixed(tree: ast.AST, visit: Visit, depth: int) -> bool:
    """Returns whether a value is the same in every call, that is, composed only of attributes, sizes and constants."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            word = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if word not in FIXED:
                return False
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            made = list(_made(node.id, visit))
            if made and (not depth or not all(_is_fixed(one, visit, depth - 1) for one in made)) and not comes_of(node, COUNT, visit):
                return False
    return True


def _made(name: str, visit: Visit) -> Iterator[ast.expr]:
    """Yields the expressions that produce a variable of the function."""
    for block in all_blocks(visit.function.tree.body):
        for one in block:
            if isinstance(one, (ast.Assign, ast.AugAssign, ast.AnnAssign)) and one.value is not None:
                targets = one.targets if isinstance(one, ast.Assign) else [one.target]
                if any(isinstance(node, ast.Name) and node.id == name for target in targets for node in ast.walk(target)):
                    yield one.value
            elif isinstance(one, ast.For) and one is not visit.item and name in targets_of(one):
                yield one.iter


def comes_of(tree: ast.AST, words: frozenset[str], visit: Visit) -> bool:
    """Returns whether a value indicates which experts have rows: whether one of `words` computes it from the same mask or numbers that the passes
    read."""
    read, told = loaded(visit.item.body), False
    arguments = visit.function.tree.args
    given = {one.arg for one in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]} - {"self"}
    for _ in range(8):
        inside = list(ast.walk(tree))
        used = {node.attr for node in inside if isinstance(node, ast.Attribute)}
        names = {node.id for node in inside if isinstance(node, ast.Name) and (node.id in given or any(_made(node.id, visit)))}
        cut = [node for node in inside if isinstance(node, ast.Subscript) and not _uses(node.value, FIND)]
        told |= bool(used & words)
        if not used <= PURE or cut or any(isinstance(node, (ast.BinOp, ast.BoolOp)) for node in inside) or not names:
            return False
        if told and names <= read:
            return True
        made = [list(_made(name, visit)) for name in names]
        if len(made) != 1 or len(made[0]) != 1:
            return False
        tree = made[0][0]
    return False


def _uses(tree: ast.AST, words: frozenset[str]) -> bool:
    return any(isinstance(node, ast.Attribute) and node.attr in words for node in ast.walk(tree))


def asks_more_of_sizes(body: list[ast.stmt]) -> bool:
    """Returns whether a test in a pass compares the number of rows with anything other than zero."""
    inside = [node for one in body for node in ast.walk(one)]
    sized: set[str] = set()
    while True:
        made = [node for node in inside if isinstance(node, ast.Assign) and _of_sizes(node.value, sized)]
        found = {name.id for node in made for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)}
        if found <= sized:
            break
        sized |= found
    tests = [node.test for node in inside if isinstance(node, (ast.If, ast.IfExp, ast.While, ast.Assert))]
    return any(_of_sizes(part, sized) and not _is_zero_test(part) for test in tests for part in parts_of_test(test))


def _of_sizes(tree: ast.AST, sized: set[str]) -> bool:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in SIZES or isinstance(node, ast.Name) and (node.id == "len" or node.id in sized):
            return True
    return False


def _is_zero_test(part: ast.expr) -> bool:
    if not isinstance(part, ast.Compare):
        return not isinstance(part, ast.BinOp)
    if len(part.ops) != 1 or not isinstance(part.comparators[0], ast.Constant):
        return False
    number, operator = part.comparators[0].value, type(part.ops[0])
    return number == 0 and operator in (ast.Eq, ast.NotEq, ast.Gt, ast.LtE) or number == 1 and operator in (ast.Lt, ast.GtE)


def without_unread(tree: ast.FunctionDef, loops: list[ast.For], given: set[str]) -> None:
    """Removes statements whose results only `loops` read and that are not in `given`, because an exporter fails on data-dependent sizes."""
    inside = {id(node) for loop in loops for node in ast.walk(loop)}
    while True:
        read = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and id(n) not in inside} | given
        dropped = False
        for block in all_blocks(tree.body):
            for at in range(len(block) - 1, -1, -1):
                if id(block[at]) not in inside and _only_makes(block[at], read):
                    block[at : at + 1] = [] if len(block) > 1 else [ast.copy_location(ast.Pass(), block[at])]
                    dropped = True
        if not dropped:
            return


def _only_makes(one: ast.stmt, read: set[str]) -> bool:
    """Returns whether a statement only counts or finds rows and assigns the result to variables that are not in `read`."""
    if not isinstance(one, ast.Assign) or not all(isinstance(target, ast.Name) and target.id not in read for target in one.targets):
        return False
    calls = [node.func for node in ast.walk(one.value) if isinstance(node, ast.Call)]
    known = all(isinstance(call, ast.Attribute) and call.attr in PURE or isinstance(call, ast.Name) and call.id in ("int", "list") for call in calls)
    return bool(calls) and known
