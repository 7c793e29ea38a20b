"""Describes what a task's reference computes, independently of how it is written. Sources are parsed, never run.

The code is read as a data-flow graph that connects each operator to the operators that produced its arguments. The following differences therefore do
not matter: names, comments, annotations, temporaries, constants (literal, computed, named, or passed to a constructor), the order of definitions and
of independent lines, import style, and `x.mean(-1)` versus `torch.mean(x, dim=-1)`. There are two measures. Two references have the same `key` if all
of their operators and their data flow are equal. The overlap of their `features` (an operator with its inputs, one and two steps back) measures their
similarity, even if a line was added.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

GIVES_INPUTS = frozenset({"get_inputs", "get_init_inputs", "get_input_variants"})  # these functions only determine sizes
GIVEN = frozenset(dir(builtins))
OF_TENSORS = frozenset({"shape", "dtype", "device", "data", "grad", "ndim", "T", "mT", "H", "mH", "real", "imag"})
LONGEST_SOURCE = 1 << 20
SAME = {"mult": "mul", "matmult": "matmul", "truediv": "div", "multiply": "mul", "subtract": "sub", "divide": "div", "usub": "neg"}


class NoReference(ValueError):
    """Raised if a source cannot be parsed or computes nothing."""


@dataclass(frozen=True)
class Structure:
    key: str
    features: frozenset[tuple[str, int]] = field(repr=False)  # (feature, number of earlier occurrences), so that repetitions count

    def similarity(self, other: Structure) -> float:
        """Returns the Jaccard similarity, between 0 and 1; structures with the same key have a similarity of 1."""
        if self.key == other.key:
            return 1.0
        both = len(self.features & other.features)
        return both / (len(self.features) + len(other.features) - both)


@dataclass(frozen=True)
class Node:
    """A value, described by the operator that produced it and by that operator's inputs. `digest` identifies the whole computation, starting from the
    inputs."""

    op: str
    digest: str
    near: str  # the operator together with the operators of its arguments

    @classmethod
    def of(cls, op: str, kids: Sequence[Node] = ()) -> Node:
        digest = hashlib.blake2b(f"{op}({','.join(kid.digest for kid in kids)})".encode(), digest_size=12).hexdigest()
        return cls(op, digest, f"{op}({','.join(kid.op for kid in kids)})")


INPUT, NUMBER = Node.of("input"), Node.of("number")


def structure(source: str) -> Structure:
    """Returns the structure of a source. Raises `NoReference`."""
    try:
        if len(source) > LONGEST_SOURCE:
            raise ValueError(f"more than {LONGEST_SOURCE} characters")
        flow = _Flow(ast.parse(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NoReference(f"it cannot be read as Python: {str(error).splitlines()[0][:200]}") from None
    if not flow.nodes:
        raise NoReference("it computes nothing")
    key = hashlib.sha256("\n".join(sorted(node.digest for node, _ in flow.nodes)).encode()).hexdigest()
    seen: Counter[str] = Counter()
    found: set[tuple[str, int]] = set()
    for node, kids in flow.nodes:
        for feature in (node.near, f"{node.op}({','.join(kid.near for kid in kids)})"):
            found.add((feature, seen[feature]))
            seen[feature] += 1
    return Structure(key, frozenset(found))


class _Flow:
    """The data flow of a module: `nodes` holds every operator with its arguments, in no particular order."""

    def __init__(self, module: ast.Module):
        self.nodes: list[tuple[Node, tuple[Node, ...]]] = []
        self.imported = _imports(module)
        functions = [n for n in ast.walk(module) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef) and n.name not in GIVES_INPUTS]
        self.own = {n.name for n in ast.walk(module) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
        self.attributes: dict[str, Node] = {}  # attributes of `self` that the constructor sets
        self.known: dict[str, Node] = {}
        self.module = {name: NUMBER for node in module.body if isinstance(node, ast.Assign) for name in _stored(node)}
        classes = [n for n in ast.walk(module) if isinstance(n, ast.ClassDef)]
        self.constants = {name for one in classes for line in one.body if isinstance(line, ast.Assign) for name in _stored(line)}
        self.attributes |= dict.fromkeys(self.constants, NUMBER)
        stored = {n.attr for n in ast.walk(module) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
        self.named = (self.own | stored) - OF_TENSORS  # attributes whose names the source chose
        for function in sorted(functions, key=lambda function: function.name != "__init__"):
            # A constructor's arguments are sizes, so they count as constants, as they would if they were literals in the code.
            given = NUMBER if function.name == "__init__" else INPUT
            self.known = dict.fromkeys((arg.arg for arg in ast.walk(function.args) if isinstance(arg, ast.arg)), given)
            self.lines(function.body)

    def lines(self, body: Sequence[ast.stmt]) -> None:
        for line in body:
            self.line(line)

    def line(self, line: ast.stmt) -> None:
        if isinstance(line, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) or _says_nothing(line):
            return
        if isinstance(line, ast.Assign | ast.AnnAssign):
            if line.value is not None:
                value = self.value(line.value)
                for target in line.targets if isinstance(line, ast.Assign) else [line.target]:
                    self.store(target, value)
        elif isinstance(line, ast.AugAssign):
            read = ast.copy_location(ast.BinOp(left=_read(line.target), op=line.op, right=line.value), line)
            self.store(line.target, self.value(read))
        elif isinstance(line, ast.For | ast.AsyncFor):
            self.store(line.target, self.made("for", (self.value(line.iter),)))
            self.lines([*line.body, *line.orelse])
        elif isinstance(line, ast.If | ast.While):
            self.made(type(line).__name__.lower(), (self.value(line.test),))
            self.lines([*line.body, *line.orelse])
        elif isinstance(line, ast.Return | ast.Expr):
            if line.value is not None:
                self.value(line.value)
        else:
            for child in ast.iter_child_nodes(line):
                if isinstance(child, ast.stmt):
                    self.line(child)
                elif isinstance(child, ast.withitem):
                    self.value(child.context_expr)
                elif isinstance(child, ast.expr):
                    self.value(child)
                elif isinstance(child, ast.ExceptHandler):
                    self.lines(child.body)

    def store(self, target: ast.expr, value: Node) -> None:
        if isinstance(target, ast.Name):
            self.known[target.id] = value
        elif isinstance(target, ast.Attribute):
            # If two classes have an attribute of the same name, the choice between them does not depend on the order of the classes.
            self.attributes[target.attr] = min(value, self.attributes.get(target.attr, value), key=lambda node: node.digest)
        elif isinstance(target, ast.Tuple | ast.List):
            for one in target.elts:
                self.store(one, value)
        elif isinstance(target, ast.Starred):
            self.store(target.value, value)
        elif isinstance(target, ast.Subscript):
            self.made("setitem", (self.value(target.value), self.value(target.slice), value))

    def value(self, node: ast.expr) -> Node:
        if isinstance(node, ast.Constant):
            return NUMBER if isinstance(node.value, int | float | complex) else Node.of(type(node.value).__name__)
        if isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant):
            return NUMBER  # the sign belongs to the constant
        if isinstance(node, ast.Name):
            found = self.known.get(node.id) or self.module.get(node.id)
            return found or Node.of("own" if node.id in self.own else _plain(node.id) if node.id in GIVEN or node.id in self.imported else "free")
        if isinstance(node, ast.Attribute):
            return self.attribute(node)
        if isinstance(node, ast.Call):
            return self.call(node)
        if isinstance(node, ast.BinOp | ast.UnaryOp):
            kids = tuple(map(self.value, (node.left, node.right) if isinstance(node, ast.BinOp) else (node.operand,)))
            return NUMBER if _constant(kids) else self.made(_plain(type(node.op).__name__), kids)
        if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            for one in node.generators:
                self.store(one.target, self.made("for", (self.value(one.iter),)))
        elif isinstance(node, ast.Lambda):
            self.known |= dict.fromkeys((arg.arg for arg in ast.walk(node.args) if isinstance(arg, ast.arg)), INPUT)
        elif isinstance(node, ast.NamedExpr):
            value = self.value(node.value)
            self.store(node.target, value)
            return value
        kids = tuple(self.value(child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))
        if isinstance(node, ast.Tuple | ast.List) and _constant(kids):
            return NUMBER  # 3 and (3, 3) mean the same kernel size
        return Node.of(type(node).__name__.lower(), kids)  # a tuple or a slice, which is not an operator

    def attribute(self, node: ast.Attribute) -> Node:
        if (dotted := self.dotted(node)) is not None:
            return Node.of(dotted)
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            return self.attributes.get(node.attr) or Node.of("own" if node.attr in self.own else "input")
        if node.attr in self.constants:
            return NUMBER
        return Node.of("its own" if node.attr in self.named else f"its {_plain(node.attr)}", (self.value(node.value),))

    def call(self, node: ast.Call) -> Node:
        """Reads a call (of a function, a method, or a module that the constructor created) as its plain name applied to its arguments."""
        kids = tuple(self.value(arg) for arg in node.args)
        # Sort the keyword arguments by value, because the source may have chosen their names and they may come in any order.
        kids += tuple(sorted((self.value(one.value) for one in node.keywords), key=lambda kid: kid.digest))
        dotted = self.dotted(node.func)
        if dotted is not None:
            made = self.made(dotted, kids) if kids else Node.of(dotted)
            return made
        if isinstance(node.func, ast.Attribute) and not (isinstance(node.func.value, ast.Name) and node.func.value.id == "self"):
            op = "own" if node.func.attr in self.own else _plain(node.func.attr)
            return self.made(op, (self.value(node.func.value), *kids))
        return self.made(self.value(node.func).op, kids)

    def dotted(self, node: ast.expr) -> str | None:
        """Returns the last component of an imported name, because `F.layer_norm`, `nn.LayerNorm` and `torch.layer_norm` are the same operator."""
        names: list[str] = []
        while isinstance(node, ast.Attribute):
            names.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self.imported or node.id in self.known:
            return None
        return _plain(names[0] if names else self.imported[node.id].rpartition(".")[2])

    def made(self, op: str, kids: tuple[Node, ...]) -> Node:
        node = Node.of(op, kids)
        self.nodes.append((node, kids))
        return node


def _constant(kids: Sequence[Node]) -> bool:
    return bool(kids) and all(kid is NUMBER for kid in kids)


def _imports(module: ast.Module) -> dict[str, str]:
    """Maps names to what they stand for; for example, `F` is `torch.nn.functional`."""
    found: dict[str, str] = {}
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            found |= {one.asname or one.name.partition(".")[0]: one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
    return found


def _plain(name: str) -> str:
    name = name.replace("_", "").lower()
    return SAME.get(name, name)


def _stored(node: ast.AST) -> list[str]:
    return [one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)]


def _read(target: ast.expr) -> ast.expr:
    """Returns the target of an assignment as an expression in load context."""
    if isinstance(target, ast.Name):
        return ast.Name(id=target.id, ctx=ast.Load())
    if isinstance(target, ast.Attribute):
        return ast.Attribute(value=target.value, attr=target.attr, ctx=ast.Load())
    assert isinstance(target, ast.Subscript)
    return ast.Subscript(value=target.value, slice=target.slice, ctx=ast.Load())


def _says_nothing(line: ast.stmt) -> bool:
    """Returns True for docstrings, `pass`, and the call to the base class's constructor."""
    if isinstance(line, ast.Pass) or isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant):
        return True
    call = line.value if isinstance(line, ast.Expr) else None
    called = call.func if isinstance(call, ast.Call) else None
    return isinstance(called, ast.Attribute) and called.attr == "__init__"
