"""Analyses the statements of a forward as a syntax tree: which names they read and write, and how to split one into several."""

# sandboxed: reads sources of the models that tasks define

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator, Mapping

BLOCKS = ("body", "orelse", "finalbody")
LOOPS = (ast.For, ast.While, ast.AsyncFor)
COMPOUND = (ast.If, *LOOPS, ast.With, ast.Try, ast.TryStar, ast.Match, ast.AsyncWith)
JUMPS = (ast.Break, ast.Continue)
_LAZY = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.IfExp, ast.BoolOp, ast.NamedExpr, ast.JoinedStr, ast.Await,
         ast.Yield, ast.YieldFrom)  # fmt: skip


def blocks_of(item: ast.stmt) -> Iterator[list[ast.stmt]]:
    """Returns the lists of statements directly within a compound statement."""
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


def loaded(trees: list[ast.stmt]) -> set[str]:
    """Returns names that are read, including those that are changed in place."""
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
    """Returns names that are assigned, imported or defined."""
    inside = [node for tree in trees for node in ast.walk(tree)]
    imported = {node.asname or node.name.partition(".")[0] for node in inside if isinstance(node, ast.alias)}
    return assigned(trees) | imported | {node.name for node in inside if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))}


def unsuper(tree: ast.AST, owner: str) -> None:
    """Gives `super()` its arguments, which it needs outside of a class."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args:
            node.args = [ast.Name(owner, ast.Load()), ast.Name("self", ast.Load())]


class Splitter:
    """Splits statements into one operation each, with new names for intermediate values."""

    def __init__(self, taken: set[str]):
        self.taken, self.count = taken, 0

    def fresh(self, word: str = "step") -> str:
        while True:
            self.count += 1
            if (name := f"{word}_{self.count}") not in self.taken:
                self.taken.add(name)
                return name

    def split(self, item: ast.stmt) -> list[ast.stmt]:
        """Splits a statement into steps; returns it unchanged where there is nothing to split, or where the order of steps depends on values."""
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
        steps: list[ast.stmt] = []
        last = copy.copy(item)
        last.value = self._reduced(value, steps, item, top=True)
        return [*steps, last]

    def _reduced(self, value: ast.expr, steps: list[ast.stmt], item: ast.stmt, top: bool = False) -> ast.expr:
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
        if top:
            return made
        name = self.fresh()
        steps.append(ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], made), item))
        return ast.Name(name, ast.Load())


class Renamer(ast.NodeTransformer):
    """Renames a function's local names, and replaces `self` by an expression."""

    def __init__(self, names: dict[str, str], owner: ast.expr):
        self.names, self.owner = names, owner

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id == "self":
            return ast.copy_location(copy.deepcopy(self.owner), node)
        return ast.copy_location(ast.Name(self.names.get(node.id, node.id), node.ctx), node)


def inlined(call: ast.Call, function: ast.FunctionDef, owner: ast.expr, fresh: Callable[[str], str]) -> tuple[list[ast.stmt], ast.expr] | None:
    """Inlines the body of `function`, a method called on `owner`: returns statements, and the expression of its result. Null where that would not be
    equivalent: it returns from several places, or its arguments cannot be told apart."""
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
    for name, default in zip(reversed(names), reversed(arguments.defaults), strict=False):
        given.setdefault(name, default)
    for only, default_of in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if default_of is not None:
            given.setdefault(only.arg, default_of)
    wanted = {*names, *(a.arg for a in arguments.kwonlyargs)}
    if set(given) != wanted:
        return None
    comprehended = {n.id for node in inside if isinstance(node, ast.comprehension) for n in ast.walk(node.target) if isinstance(n, ast.Name)}
    own = {name: fresh(name) for name in sorted(wanted | assigned(body) | comprehended)}
    renamer = Renamer(own, owner)
    first: list[ast.stmt] = [ast.copy_location(ast.Assign([ast.Name(own[name], ast.Store())], value), call) for name, value in given.items()]
    rest = [renamer.visit(copy.deepcopy(item)) for item in body]
    last = rest.pop()
    return [*first, *rest], last.value


def unrolled(item: ast.For, owner: ast.expr, count: int) -> list[ast.stmt] | None:
    """Unrolls a loop over the modules that `owner` holds; null for a loop that may exit early."""
    if item.orelse or any(isinstance(node, JUMPS) for node in ast.walk(item)):
        return None
    target, numbered = item.target, False
    if isinstance(target, ast.Tuple) and len(target.elts) == 2 and all(isinstance(e, ast.Name) for e in target.elts):
        numbered = True
    elif not isinstance(target, ast.Name):
        return None
    words = [one.id for one in (target.elts if isinstance(target, ast.Tuple) else [target]) if isinstance(one, ast.Name)]
    found: list[ast.stmt] = []
    for at in range(count):
        module = ast.Subscript(copy.deepcopy(owner), ast.Constant(at), ast.Load())
        swap = _Swap(dict(zip(words, [ast.Constant(at), module] if numbered else [module], strict=True)))
        found += [swap.visit(copy.deepcopy(inner)) for inner in item.body]
    return found


class _Swap(ast.NodeTransformer):
    def __init__(self, values: Mapping[str, ast.expr]):
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.values and isinstance(node.ctx, ast.Load):
            return ast.copy_location(copy.deepcopy(self.values[node.id]), node)
        return node
