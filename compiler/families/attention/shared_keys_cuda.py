"""The source text for blocks that each process a share of the keys, as in decoding, where a few queries attend to many keys.

Each block stores its sums relative to its largest score. A second kernel adds them up (T. Dao et al., "Flash-Decoding for long-context inference",
2023).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compiler.families.attention.attention_cuda import Heads


def unfinished(heads: Heads) -> list[str]:
    """Returns the lines of code that store the sums of a block's share of the keys, with the largest score and the total weight of each query."""
    batch = "batch" if heads.batches > 1 else "0"
    return [
        "rows.add_totals();",
        f"scratch += ((long)blockIdx.z * {heads.batches} + {batch}) * {heads.queries * (heads.width + 2)};",
        "#pragma unroll",
        "for (int half = 0; half < 2; ++half) {",
        "    const int row = row0 + rows.group + half * 8;",
        f"    if (row >= {heads.queries}) continue;",
        f"    float* const to = scratch + row * {heads.width + 2};",
        "#pragma unroll",
        f"    for (int j = 0; j < {heads.width // 8}; ++j)",
        "#pragma unroll",
        "        for (int r = 0; r < 2; ++r) to[j * 8 + rows.within * 2 + r] = rows.sum[j][half * 2 + r];",
        f"    if (rows.within == 0) to[{heads.width}] = rows.largest[half], to[{heads.width + 1}] = rows.total[half];",
        "}",
    ]


def joined(heads: Heads, shares: int, tail: list[str]) -> list[str]:
    """Returns the lines of code that add up the shares of the keys in order, relative to the largest score of all, and apply the tail."""
    results, width = heads.batches * heads.queries * heads.width, heads.width + 2
    apart = heads.batches * heads.queries * width
    return [
        "const long at = (long)blockIdx.x * 256 + threadIdx.x;",
        f"if (at >= {results}) return;",
        f"const int column = at % {heads.width}, row = at / {heads.width} % {heads.queries};",
        *([f"const int batch = at / {heads.queries * heads.width};"] if heads.batches > 1 else []),
        f"scratch += at / {heads.width} * {width};",
        "float high = -INFINITY, value = 0.0f, total = 0.0f;",
        f"for (int share = 0; share < {shares}; ++share) high = fmaxf(high, scratch[(long)share * {apart} + {heads.width}]);",
        "if (high == -INFINITY) high = 0.0f;  // all keys are masked: there is no weight",
        f"for (int share = 0; share < {shares}; ++share) {{",
        f"    const float* const part = scratch + (long)share * {apart};",
        f"    const float again = expf(part[{heads.width}] - high);",
        "    value += part[column] * again;",
        f"    total += part[{heads.width + 1}] * again;",
        "}",
        "value /= total;",
        *tail,
    ]
