"""Row positions of tiles when only the device knows the group sizes.

The grid has enough blocks for the largest possible number of tiles; surplus blocks return immediately.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.families.text import signed
from compiler.kernel.text import known, times

if TYPE_CHECKING:
    from compiler.families.product.tensor_cores import Product

END = "rows.end"  # one past the last row of a tile's group
RESERVED = ("begins", "rows")
SHARED = """\
// Tiles lie group after group, and none has rows of two groups: the group of a tile, its first row, and the end of the group's rows. Rows of no group
// lie before the first and behind the last one, and are computed with these: all that follows for a row stands in this kernel.
struct GroupRows {
    int group, first, end;
};
__device__ __forceinline__ GroupRows rows_of_tile(const long long* __restrict__ begins, int groups, int rows, int height, int tile) {
    int first = 0;
    for (int group = 0; group < groups; ++group) {
        const int end = group + 1 < groups ? (int)begins[group + 1] : rows, tiles = (end - first + height - 1) / height;
        if (tile < tiles) return {group, first + tile * height, end};
        tile -= tiles;
        first = end;
    }
    return {-1, 0, 0};
}
"""


def shared(product: Product) -> list[str]:
    return [SHARED] if product.groups else []


def position(product: Product, height: int, width: int) -> list[str]:
    """Declares `row0`, `column0`, `rows` and `batch` (the group). Consecutive blocks process the same columns, so all tiles of a group read its
    weight at about the same time."""
    down, groups = known(product.down(height)), f"{known(product.groups)}, {known(product.rows)}"
    return [
        f"const GroupRows rows = rows_of_tile(begins{signed(product.begins)}, {groups}, {known(height)}, blockIdx.x % {down});",
        "if (rows.group < 0) return;",
        f"const int batch = rows.group, row0 = rows.first, column0 = {times(f'blockIdx.x / {down}', width)};",
    ]
