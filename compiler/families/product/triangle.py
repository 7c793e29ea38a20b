"""Products that keep only one triangle of the result. Tiles that are entirely in the zero part skip the depth loop.

`triu(a @ b)` and `tril(a @ b)` set the other part to zero regardless of the product, so skipping it is exact. The operands themselves may also be
triangular, but this is neither detected nor exploited.
"""

from __future__ import annotations

from compiler.families.family import Work
from compiler.families.product.tensor_cores import Product, Threaded
from compiler.graph.network import plain
from compiler.graph.reductions import short
from compiler.kernel.text import below, beyond, end, shift
from verifier.graph import Node


def triangle_of(work: Work, rows: int) -> Node | None:
    """Returns the operator that extracts a triangle of the product, if nothing else reads the product. The operator's input must have `rows` rows."""
    network, value = work.network, work.match.value
    users = network.users[value]
    if len(users) != 1 or network.escapes(value) or work.tail.kernel.arguments[work.tail.result].written:
        return None
    node = network.nodes[users[0]]
    return node if short(node) in ("triu", "tril") and network.spec(value).shape[-2] == rows else None


def kept_share(work: Work, rows: int, columns: int) -> float:
    """Returns the fraction of elements that are in the triangle."""
    node = triangle_of(work, rows)
    if node is None:
        return 1.0
    diagonal = _diagonal(node)
    kept = sum(max(0, min(columns, columns - row - diagonal)) for row in range(rows))
    return kept / (rows * columns) if short(node) == "triu" else 1 - (kept - _on(diagonal, rows, columns)) / (rows * columns)


def zeros(work: Work, product: Product, tile: Threaded, columns: list[str], tail: list[str]) -> list[str]:
    """Returns statements that write a tile of zeros at (`row0`, `column0`) before anything is loaded. The list is empty if the product has no such
    triangle."""
    node = triangle_of(work, product.rows)
    if node is None:
        return []
    diagonal = _diagonal(node)
    above = f"column0 + {shift(tile.columns - 1)} - {below('row0', diagonal)}"  # elements with column - row >= diagonal are kept
    nothing = above if short(node) == "triu" else f"column0 - row0 - {tile.rows - 1} > {end(diagonal)}"
    partly = product.rows % tile.rows or product.columns % tile.columns
    lines = [f"const int row = row0 + at / {tile.columns}, column = column0 + at % {tile.columns};"]
    lines += [f"if ({beyond('row', product.rows)} || {beyond('column', product.columns)}) continue;"] if partly else []
    lines += [*columns, "const float value = 0.0f;", *tail]
    return [
        f"if ({nothing}) {{  // a tile of zeros",
        f"    for (int at = threadIdx.x; at < {tile.rows * tile.columns}; at += {tile.threads}) {{",
        *(f"        {line}" for line in lines),
        "    }",
        "    return;",
        "}",
    ]


def _diagonal(node: Node) -> int:
    diagonal: int = plain(node.args[1]) if len(node.args) > 1 else 0
    return diagonal


def _on(diagonal: int, rows: int, columns: int) -> int:
    """Returns the number of elements on a diagonal."""
    return max(0, min(rows, columns - diagonal) - max(0, -diagonal))
