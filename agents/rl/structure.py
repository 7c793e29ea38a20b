"""What a task's reference computes, apart from how it is spelled: names, comments, order of definitions and constants are taken out.

Two measures. The `key` is equal for copies that were only renamed, reordered or given other sizes. The `shingles` are runs of tokens of the code that
computes; their overlap says how alike two references are, also where a line was added. Sources are parsed, never run.
"""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

RUN = 3  # tokens of a shingle
GIVES_INPUTS = frozenset({"get_inputs", "get_init_inputs", "get_input_variants"})  # sizes alone
LONGEST_SOURCE = 1 << 20


class NoReference(ValueError):
    """A source that cannot be parsed, or computes nothing."""


@dataclass(frozen=True)
class Structure:
    key: str
    shingles: frozenset[tuple] = field(repr=False)  # (shingle, how often it came before), so that overlap counts repetitions

    def similarity(self, other: Structure) -> float:
        """Between 0 and 1 (Jaccard); 1 for the same key."""
        if self.key == other.key:
            return 1.0
        both = len(self.shingles & other.shingles)
        return both / (len(self.shingles) + len(other.shingles) - both)


def structure(source: str) -> Structure:
    """Raises `NoReference`."""
    try:
        if len(source) > LONGEST_SOURCE:
            raise ValueError(f"more than {LONGEST_SOURCE} characters")
        module = ast.parse(source)
        parts = [list(tokens) for tokens in _parts(module)]
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NoReference(f"it cannot be read as Python: {str(error).splitlines()[0][:200]}") from None
    parts = sorted(part for part in parts if part)
    if not parts:
        raise NoReference("nothing in it computes anything")
    key = hashlib.sha256(repr(parts).encode()).hexdigest()
    seen: Counter[tuple[str, ...]] = Counter()
    found: set[tuple] = set()
    for part in parts:
        padded = ["<", *part, ">"]
        for at in range(max(len(padded) - RUN + 1, 1)):
            shingle = tuple(padded[at : at + RUN])
            found.add((shingle, seen[shingle]))
            seen[shingle] += 1
    return Structure(key, frozenset(found))


def _parts(module: ast.Module) -> Iterator[Iterator[str]]:
    """The tokens of each function, wherever it stands; of a constructor those of each line, for their order is hardly ever one."""
    walk = _Walk(_imports(module), *_own_names(module))
    for node in ast.walk(module):
        if isinstance(node, ast.Lambda):
            yield walk.of([node.body])
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == "__init__":
            yield from (walk.of([line]) for line in node.body)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name not in GIVES_INPUTS:
            yield walk.of(node.body)


def _imports(module: ast.Module) -> dict[str, str]:
    """Names to what they stand for: `F` is `torch.nn.functional`."""
    found = {}
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            for one in node.names:
                found[one.asname or one.name.partition(".")[0]] = one.name if one.asname else one.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom):
            found |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
    return found


def _own_names(module: ast.Module) -> tuple[frozenset[str], frozenset[str]]:
    """What the source itself names: definitions, arguments and variables; and methods and attributes, for `x.mean` is torch's even where a
    variable is called `mean`."""
    names: set[str] = set()
    attributes: set[str] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
            attributes.add(node.name)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            attributes.add(node.attr)
    return frozenset(names), frozenset(attributes)


class _Walk:
    """Tokens of lines: the names of others stay, its own are one token, a constant is its type, what only makes a class run is left out."""

    def __init__(self, imported: dict[str, str], own: frozenset[str], attributes: frozenset[str]):
        self.imported, self.own, self.attributes = imported, own, attributes

    def of(self, lines: Sequence[ast.AST]) -> Iterator[str]:
        for line in lines:
            if not _says_nothing(line):
                yield from self.tokens(line)

    def tokens(self, node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return  # a part of its own
        if isinstance(node, ast.Constant):
            yield "number" if isinstance(node.value, int | float | complex) else type(node.value).__name__
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            yield "number"  # the sign is the constant's
        elif isinstance(node, ast.Name):
            yield self.imported.get(node.id) or ("own" if node.id in self.own else node.id)
        elif isinstance(node, ast.Attribute):
            yield from self.dotted(node)
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None:
                yield from self.tokens(ast.Assign(targets=[node.target], value=node.value))
        elif isinstance(node, ast.keyword):
            yield f"{node.arg}="
            yield from self.tokens(node.value)
        elif not isinstance(node, ast.expr_context):
            yield type(node).__name__
            for child in ast.iter_child_nodes(node):
                yield from self.tokens(child)

    def dotted(self, node: ast.Attribute) -> Iterator[str]:
        """`F.relu` and `torch.nn.functional.relu` are one token; `x.relu` is `.relu`; `self.anything` is an own name."""
        names, inner = [node.attr], node.value
        while isinstance(inner, ast.Attribute):
            names.append(inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name) and inner.id in self.imported:
            yield ".".join([self.imported[inner.id], *reversed(names)])
            return
        yield from self.tokens(node.value)
        yield "own" if node.attr in self.attributes else f".{node.attr}"


def _says_nothing(line: ast.AST) -> bool:
    """Docstrings, `pass`, and the call of the base's constructor."""
    if isinstance(line, ast.Pass) or isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant):
        return True
    call = line.value if isinstance(line, ast.Expr) else None
    called = call.func if isinstance(call, ast.Call) else None
    return isinstance(called, ast.Attribute) and called.attr == "__init__"
