"""Analyses and transforms the statements of a forward as a syntax tree: finds the names that they read and write, and splits one statement into
several."""

# sandboxed: reads sources of the models that tasks define

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypeGuard

import torch

BLOCKS = ("body", "orelse", "finalbody")
LOOPS = (ast.For, ast.While, ast.AsyncFor)
COMPOUND = (ast.If, *LOOPS, ast.With, ast.Try, ast.TryStar, ast.Match, ast.AsyncWith)
LONGEST = 80  # characters of an expression in a message
JUMPS = (ast.Break, ast.Continue)
_LAZY = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.IfExp, ast.BoolOp, ast.NamedExpr, ast.JoinedStr, ast.Await,
         ast.Yield, ast.YieldFrom)  # fmt: skip

_MADE = (ast.List, ast.Dict, ast.Set, ast.Call, ast.ListComp, ast.DictComp)  # as a default value, made once for all calls


def blocks_of(item: ast.stmt) -> Iterator[list[ast.stmt]]:
    """Yields the lists of statements directly within a compound statement."""
    for field in BLOCKS:
        if isinstance(block := getattr(item, field, None), list) and block:
            yield block
    for branch in [*getattr(item, "handlers", []), *getattr(item, "cases", [])]:
        yield branch.body


def all_blocks(block: list[ast.stmt]) -> Iterator[list[ast.stmt]]:
    yield block
    for item in block:
        if isinstance(item, COMPOUND):
            for inner in blocks_of(item):
                yield from all_blocks(inner)


def own_nodes(item: ast.AST) -> Iterator[ast.AST]:
    """Yields the nodes of a statement, excluding those of the functions and classes that it defines."""
    yield item
    if not isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
        for child in ast.iter_child_nodes(item):
            yield from own_nodes(child)


def made_function(item: ast.AST) -> str:
    """Returns the name of the function that a statement defines, or "" for any other statement."""
    if isinstance(item, ast.FunctionDef):
        return item.name
    target = item.targets[0] if isinstance(item, ast.Assign) and isinstance(item.value, ast.Lambda) else None
    return target.id if isinstance(target, ast.Name) else ""


def loaded(trees: list[ast.stmt]) -> set[str]:
    """Returns the names that are read, including those that are changed in place."""
    found = set()
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Load, ast.Del)):
            found.add(node.id)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return found


def assigned(trees: list[ast.stmt]) -> set[str]:
    return {node.id for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def stored(trees: list[ast.stmt]) -> set[str]:
    """Returns the names that are assigned, imported or defined. Excludes the variables of comprehensions and functions, which are local to them."""
    inside = [node for tree in trees for node in own_nodes(tree)]
    imported = {node.asname or node.name.partition(".")[0] for node in inside if isinstance(node, ast.alias)}
    within = {id(name) for node in inside if isinstance(node, ast.comprehension) for name in ast.walk(node.target)}
    lasting = {node.id for node in inside if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in within}
    return lasting | imported | {node.name for node in inside if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))}


def unsuper(tree: ast.AST, owner: str) -> None:
    """Adds the explicit arguments that `super()` needs outside a class, and names the class instead of `__class__`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == "__class__":
            node.id = owner
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args:
            node.args = [ast.Name(owner, ast.Load()), ast.Name("self", ast.Load())]


def under_self(tree: ast.Module) -> ast.Module:
    """Renames the first parameter of methods to `self`, if the source gives it another name. Returns the changed tree."""
    for owner in [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]:
        for method in owner.body:
            if isinstance(method, ast.FunctionDef) and not {"staticmethod", "classmethod"} & {ast.unparse(one) for one in method.decorator_list}:
                _rename_first(method)
    return tree


def _rename_first(method: ast.FunctionDef) -> None:
    first = next(iter([*method.args.posonlyargs, *method.args.args]), None)
    inside = [node for item in method.body for node in ast.walk(item)]
    names = [node for node in inside if isinstance(node, ast.Name)]
    if first is None or first.arg == "self" or any(node.id == "self" for node in names):
        return
    bound = {node.arg for node in inside if isinstance(node, ast.arg)} | {node.id for node in names if not isinstance(node.ctx, ast.Load)}
    if first.arg in bound:
        return
    for node in names:
        node.id = "self" if node.id == first.arg else node.id
    first.arg = "self"


def root(value: ast.expr) -> str:
    """Returns the variable of an expression such as `self.layer.weight`; empty if there is none."""
    while isinstance(value, ast.Attribute):
        value = value.value
    return value.id if isinstance(value, ast.Name) else ""


class Splitter:
    """Splits statements into single operations, with new names for intermediate values."""

    def __init__(self, taken: set[str]):
        self.taken, self.count = taken, 0
        self.changing: Collection[str] = ()  # names of values that a call may change
        self.local: Collection[str] = ()  # variables other than `self`
        self.early = False  # whether a read of such a value becomes a step of its own
        self.shown: dict[str, str] = {}  # new name -> what the source has in its place

    def fresh(self, word: str = "step", shown: str = "") -> str:
        """Returns a new name that begins with `word`. `shown` is the text that messages use for it: source text or, by default, the word."""
        while True:
            self.count += 1
            if (name := f"{word}_{self.count}") not in self.taken:
                self.taken.add(name)
                text = self.of_source(shown or word)
                self.shown[name] = text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
                return name

    def of_source(self, text: str) -> str:
        """Replaces new names in `text`, an expression or a message, with the source text that they stand for."""
        return re.sub(r"\b[^\W\d]\w*_\d+\b", lambda name: self.shown.get(name[0], name[0]), text)

    def split(self, item: ast.stmt) -> list[ast.stmt]:
        """Splits a statement into steps. Returns it unchanged if there is nothing to split or if the order of the steps depends on values."""
        value = getattr(item, "value", None)
        if not isinstance(item, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Expr)) or not isinstance(value, ast.expr):
            return [item]
        if isinstance(item, ast.Assign) and not all(isinstance(t, (ast.Name, ast.Tuple)) for t in item.targets):
            return [item]
        if (
            isinstance(item, ast.AugAssign)
            and not isinstance(item.target, ast.Name)
            or any(isinstance(node, ast.NamedExpr) for node in ast.walk(item))
        ):
            return [item]
        for early in (False, True):
            self.early = early
            steps: list[ast.stmt] = []
            last = copy.copy(item)
            last.value = self._reduced(value, steps, item, top=True)
            if not self._later(steps, last):
                return [*steps, last]
        return [item]

    def _later(self, steps: list[ast.stmt], last: ast.stmt) -> bool:
        """Returns whether splitting moved the read of a changing value behind a call that came after it, as in `self.state + self.update(x)`."""
        for at, step in enumerate(steps):
            calls = [(node.lineno, node.col_offset) for node in ast.walk(step) if isinstance(node, ast.Call)]
            behind = [node for other in (*steps[at + 1 :], last) for node in ast.walk(other) if self._changes(node)]
            if calls and any((node.lineno, node.col_offset) < min(calls) for node in behind):
                return True
        return False

    def _changes(self, node: ast.AST) -> TypeGuard[ast.expr]:
        """Returns whether a call may change what an expression reads: a changing value, or an attribute of an object that a variable holds."""
        if not isinstance(node, (ast.Attribute, ast.Name)) or not hasattr(node, "lineno"):
            return False
        return ast.unparse(node) in self.changing or isinstance(node, ast.Attribute) and root(node) in self.local

    def _reduced(self, value: ast.expr, steps: list[ast.stmt], item: ast.stmt, top: bool = False) -> ast.expr:
        if self.early and self._changes(value):
            return self._step(value, value, steps, item)
        if isinstance(value, _LAZY) or not any(isinstance(node, (ast.Call, ast.BinOp, ast.Subscript)) for node in ast.walk(value)):
            return value
        made = copy.copy(value)

        def again(part: ast.expr) -> ast.expr:
            return self._reduced(part, steps, item)

        if isinstance(made, ast.Call):
            if isinstance(made.func, ast.Attribute):
                made.func = copy.copy(made.func)
                made.func.value = again(made.func.value)
            made.args = [again(a) if not isinstance(a, ast.Starred) else a for a in made.args]
            made.keywords = [ast.keyword(k.arg, again(k.value)) for k in made.keywords]
        elif isinstance(made, ast.BinOp):
            made.left, made.right = again(made.left), again(made.right)
        elif isinstance(made, ast.UnaryOp):
            made.operand = again(made.operand)
        elif isinstance(made, ast.Compare) and len(made.ops) == 1:
            made.left, made.comparators = again(made.left), [again(made.comparators[0])]
        elif isinstance(made, ast.Subscript):
            made.value = again(made.value)
        elif isinstance(made, ast.Attribute):
            made.value = again(made.value)
            return made
        elif isinstance(made, (ast.Tuple, ast.List)):
            made.elts = [again(e) if not isinstance(e, ast.Starred) else e for e in made.elts]
            return made
        elif isinstance(made, ast.Dict):
            made.values = [again(e) for e in made.values]
            return made
        else:
            return value
        return made if top else self._step(value, made, steps, item)

    def _step(self, value: ast.expr, made: ast.expr, steps: list[ast.stmt], item: ast.stmt) -> ast.expr:
        """Assigns `made`, what has become of `value`, in a step of its own. Returns the name."""
        name = self.fresh(shown=ast.unparse(value))
        steps.append(ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], made), item))
        return ast.Name(name, ast.Load())


class Renamer(ast.NodeTransformer):
    """Renames a function's local names, and replaces `self` with an expression."""

    def __init__(self, names: dict[str, str], owner: ast.expr):
        self.names, self.owner = names, owner

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id == "self":
            return ast.copy_location(copy.deepcopy(self.owner), node)
        return ast.copy_location(ast.Name(self.names.get(node.id, node.id), node.ctx), node)


def inlined(call: ast.Call, function: ast.FunctionDef, owner: ast.expr, fresh: Callable[[str], str]) -> tuple[list[ast.stmt], ast.expr] | None:
    """Inlines the body of `function`, a method called on `owner`. Returns the statements and the result expression, or None if inlining would not be
    equivalent, for example because the function returns in several places or the arguments cannot be matched to its parameters."""
    body = [item for item in function.body if not (isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant))]
    inside = [node for item in body for node in ast.walk(item)]
    returns = [node for node in inside if isinstance(node, ast.Return)]
    arguments = function.args
    hard = (ast.FunctionDef, ast.Lambda, ast.Global, ast.Nonlocal, ast.Yield, ast.YieldFrom, ast.ClassDef)
    if arguments.vararg or arguments.kwarg or function.decorator_list or any(isinstance(node, hard) for node in inside):
        return None
    if not body or len(returns) != 1 or returns[0] is not body[-1] or returns[0].value is None:
        return None
    names = [a.arg for a in [*arguments.posonlyargs, *arguments.args]][1:]
    if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords) or len(call.args) > len(names):
        return None
    given = dict(zip(names, call.args, strict=False)) | {str(k.arg): k.value for k in call.keywords}
    own_values = {id(value) for value in given.values()}
    for name, default in zip(reversed(names), reversed(arguments.defaults), strict=False):
        given.setdefault(name, default)
    for only, default_of in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if default_of is not None:
            given.setdefault(only.arg, default_of)
    wanted = {*names, *(a.arg for a in arguments.kwonlyargs)}
    if set(given) != wanted or any(isinstance(given[name], _MADE) for name in wanted if id(given[name]) not in own_values):
        return None
    comprehended = {n.id for node in inside if isinstance(node, ast.comprehension) for n in ast.walk(node.target) if isinstance(n, ast.Name)}
    own = {name: fresh(name) for name in sorted(wanted | assigned(body) | comprehended)}
    renamer = Renamer(own, owner)
    first: list[ast.stmt] = [ast.copy_location(ast.Assign([ast.Name(own[name], ast.Store())], value), call) for name, value in given.items()]
    rest = [renamer.visit(copy.deepcopy(item)) for item in body]
    last = rest.pop()
    return [*first, *rest], last.value


def elements(iterated: ast.expr, held: Callable[[ast.expr], Any]) -> list[ast.expr] | None:
    """Returns one expression per pass of a loop over modules or over a list that the model holds, or None for any other loop. `held` evaluates an
    expression in terms of `self`, and returns None for any other expression."""
    if isinstance(iterated, ast.Call) and not iterated.keywords:
        inside = [elements(argument, held) for argument in iterated.args]
        name = ast.unparse(iterated.func)
        known = [one for one in inside if one is not None]
        if name == "enumerate" and len(known) == len(inside) == 1:
            return [ast.Tuple([ast.Constant(at), one], ast.Load()) for at, one in enumerate(known[0])]
        if name == "reversed" and len(known) == len(inside) == 1:
            return known[0][::-1]
        if name == "zip" and inside and len(known) == len(inside):
            return [ast.Tuple(list(row), ast.Load()) for row in zip(*known, strict=False)]
        if name == "range":
            bounds = [_count(argument, held) for argument in iterated.args]
            return [ast.Constant(at) for at in range(*bounds)] if all(isinstance(bound, int) for bound in bounds) else None
        return _of_dict(iterated, held)
    owner = held(iterated)
    if isinstance(owner, (torch.nn.ModuleList, torch.nn.Sequential)) or type(owner) in (list, tuple):
        return [ast.Subscript(copy.deepcopy(iterated), ast.Constant(at), ast.Load()) for at in range(len(owner))]
    return None


def _of_dict(call: ast.Call, held: Callable[[ast.expr], Any]) -> list[ast.expr] | None:
    """Returns one expression per key, value or item of a dict of modules; None for any other call."""
    if not isinstance(call.func, ast.Attribute) or call.args or not isinstance(owner := held(call.func.value), torch.nn.ModuleDict):
        return None
    keys = [ast.Constant(key) for key in owner]
    values = [ast.Subscript(copy.deepcopy(call.func.value), key, ast.Load()) for key in keys]
    items = [ast.Tuple([key, value], ast.Load()) for key, value in zip(keys, values, strict=True)]
    found: dict[str, list[Any]] = {"keys": keys, "values": values, "items": items}
    return found.get(call.func.attr)


def _count(tree: ast.expr, held: Callable[[ast.expr], Any]) -> Any:
    """Evaluates a bound of `range`: a literal, a number that the model holds, or the length of a list of modules."""
    if isinstance(tree, ast.Constant):
        return tree.value
    if isinstance(tree, ast.Call) and ast.unparse(tree.func) == "len" and len(tree.args) == 1:
        owner = held(tree.args[0])
        return len(owner) if isinstance(owner, (torch.nn.ModuleList, torch.nn.Sequential, list, tuple)) else None
    return held(tree)


def unrolled(item: ast.For, passes: list[ast.expr], kept: Collection[str], fresh: Callable[[str], str]) -> list[ast.stmt] | None:
    """Unrolls a loop into its `passes`, the values of its target. Returns None if the target consists of anything other than names. The target is
    assigned only if its name is in `kept`. A pass that may end early becomes a loop with one pass, as does a loop that may end early, so `break` and
    `continue` remain unchanged."""
    jumps = list(own_jumps(item.body))
    ends, skips = (any(isinstance(node, kind) for node in jumps) for kind in (ast.Break, ast.Continue))
    bodies: list[list[ast.stmt]] = []
    for value in passes:
        words = _matched(item.target, value)
        if words is None or set(words) & (assigned(item.body) | _parameters(item.body)):
            return None
        first: list[ast.stmt] = [ast.copy_location(ast.Assign([ast.Name(n, ast.Store())], v), item) for n, v in words.items() if n in kept]
        bodies.append([*first, *(_Swap(words).visit(copy.deepcopy(inner)) for inner in item.body)])

    def once(body: list[ast.stmt], orelse: list[ast.stmt]) -> ast.stmt:
        return ast.copy_location(ast.For(ast.Name(fresh("once"), ast.Store()), ast.Tuple([ast.Constant(0)], ast.Load()), body, orelse), item)

    if ends and skips:
        rest = item.orelse
        for body in reversed(bodies):
            rest = [once(body, rest)]
        return rest
    if skips:
        return [*(once(body, []) for body in bodies), *item.orelse]
    whole = [inner for body in bodies for inner in body]
    return [once(whole, item.orelse)] if ends and whole else [*whole, *item.orelse]


def _parameters(block: list[ast.stmt]) -> set[str]:
    """Returns the parameters of all functions within a block."""
    return {node.arg for item in block for node in ast.walk(item) if isinstance(node, ast.arg)}


def own_jumps(block: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yields the `break` and `continue` statements that belong to the loop with the body `block`."""
    for item in block:
        if isinstance(item, JUMPS):
            yield item
        elif isinstance(item, LOOPS):
            yield from own_jumps(item.orelse)
        elif isinstance(item, COMPOUND):
            for inner in blocks_of(item):
                yield from own_jumps(inner)


def _matched(target: ast.expr, value: ast.expr) -> dict[str, ast.expr] | None:
    """Maps the names of a loop's target to their expressions in a pass. Returns None if the target consists of anything other than names."""
    if isinstance(target, ast.Name):
        return {target.id: value}
    if not isinstance(target, ast.Tuple) or not isinstance(value, ast.Tuple) or len(target.elts) != len(value.elts):
        return None
    found: dict[str, ast.expr] = {}
    for one, inner in zip(target.elts, value.elts, strict=True):
        if (words := _matched(one, inner)) is None:
            return None
        found |= words
    return found


class _Swap(ast.NodeTransformer):
    def __init__(self, values: Mapping[str, ast.expr]):
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.values and isinstance(node.ctx, ast.Load):
            return ast.copy_location(copy.deepcopy(self.values[node.id]), node)
        return node
