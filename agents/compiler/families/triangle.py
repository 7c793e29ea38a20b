"""Products of which only a triangle is kept: tiles that lie wholly in the part of zeros take no step of the depth.

`triu(a @ b)` and `tril(a @ b)` set the other part to zero whatever the product is there, so leaving it out is exact. What is not known, and not used:
whether the operands are triangles themselves.
"""

from __future__ import annotations

from agents.compiler.families.family import Work
from agents.compiler.network import plain
from agents.compiler.reductions import short
from verifier.graph import Node


def triangle_of(work: Work, rows: int) -> Node | None:
    """The operator that cuts a triangle from the product, if nothing else reads the product. `rows` of the matrix that it cuts."""
    network, value = work.network, work.match.value
    users = network.users[value]
    if len(users) != 1 or network.escapes(value) or work.tail.kernel.arguments[work.tail.result].written:
        return None
    node = network.nodes[users[0]]
    return node if short(node) in ("triu", "tril") and network.spec(value).shape[-2] == rows else None


def kept_share(work: Work, rows: int, columns: int) -> float:
    """Of the elements, those in the triangle."""
    node = triangle_of(work, rows)
    if node is None:
        return 1.0
    diagonal = _diagonal(node)
    kept = sum(max(0, min(columns, columns - row - diagonal)) for row in range(rows))
    return kept / (rows * columns) if short(node) == "triu" else 1 - (kept - _on(diagonal, rows, columns)) / (rows * columns)


def steps(work: Work, rows: int, height: int, width: int, count: int) -> tuple[list[str], str]:
    """Declarations, and the expression for the steps of the depth of the tile at (`row0`, `column0`), which is `height` by `width`."""
    node = triangle_of(work, rows)
    if node is None:
        return [], ""
    diagonal = _diagonal(node)
    upper = f"column0 + {width - 1} - row0 >= {diagonal}"  # kept where column - row >= diagonal
    some = upper if short(node) == "triu" else f"column0 - row0 - {height - 1} <= {diagonal}"
    return [f"const int steps = {some} ? {count} : 0;  // none in a tile of zeros"], "steps"


def _diagonal(node: Node) -> int:
    return plain(node.args[1]) if len(node.args) > 1 else 0


def _on(diagonal: int, rows: int, columns: int) -> int:
    """Elements of a diagonal."""
    return max(0, min(rows, columns - diagonal) - max(0, -diagonal))
