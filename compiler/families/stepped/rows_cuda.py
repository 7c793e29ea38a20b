"""The lines of a kernel that compute an operator over a row, with one warp per row."""

from __future__ import annotations

from compiler.families.stepped.pieces import RowOperator

ROWWISE = """\
// Every lane gets the sum, or the largest, over its warp.
__device__ __forceinline__ float sum_of_warp(float value) {
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
    return value;
}
__device__ __forceinline__ float most_of_warp(float value) {
    for (int step = 16; step > 0; step /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, value, step);
        value = value > other || value != value ? value : other;
    }
    return value;
}
"""


def _lanes(width: int, statement: str) -> str:
    return f"for (int i = lane; i < {width}; i += 32) {statement}"


def _layer_norm(piece: RowOperator, named: dict[str, str]) -> list[str]:
    width = piece.x.width
    scale = f" * {named[piece.scale]}[i]" if piece.scale else ""
    shift = f" + {named[piece.shift]}[i]" if piece.shift else ""
    return [
        "float total = 0.0f, squares = 0.0f;",
        _lanes(width, "total += from[i];"),
        f"const float mean = sum_of_warp(total) / {width}.0f;",
        _lanes(width, "squares += (from[i] - mean) * (from[i] - mean);"),
        f"const float scale = 1.0f / sqrtf(sum_of_warp(squares) / {width}.0f + {piece.eps!r}f);",
        _lanes(width, f"out[i] = (from[i] - mean) * scale{scale}{shift};"),
    ]


def _exponentials(width: int) -> list[str]:
    return [
        "float most = -INFINITY, total = 0.0f;",
        _lanes(width, "most = from[i] > most || from[i] != from[i] ? from[i] : most;"),
        "most = most_of_warp(most);",
    ]


def _softmax(piece: RowOperator, named: dict[str, str]) -> list[str]:
    width = piece.x.width
    return [
        *_exponentials(width),
        _lanes(width, "out[i] = expf(from[i] - most), total += out[i];"),
        "const float scale = 1.0f / sum_of_warp(total);",
        _lanes(width, "out[i] *= scale;"),
    ]


def _log_softmax(piece: RowOperator, named: dict[str, str]) -> list[str]:
    width = piece.x.width
    return [
        *_exponentials(width),
        _lanes(width, "total += expf(from[i] - most);"),
        "const float shift = logf(sum_of_warp(total));",
        _lanes(width, "out[i] = from[i] - most - shift;"),
    ]


def _logsumexp(piece: RowOperator, named: dict[str, str]) -> list[str]:
    return [
        *_exponentials(piece.x.width),
        "const float base = most == INFINITY || most == -INFINITY ? 0.0f : most;",
        _lanes(piece.x.width, "total += expf(from[i] - base);"),
        "const float found = base + logf(sum_of_warp(total));",
        "if (lane == 0) out[0] = found;",
    ]


def _variance(piece: RowOperator, named: dict[str, str]) -> list[str]:
    width = piece.x.width
    found = f"sum_of_warp(squares) / {width - piece.correction}.0f"
    return [
        "float total = 0.0f, squares = 0.0f;",
        _lanes(width, "total += from[i];"),
        f"const float mean = sum_of_warp(total) / {width}.0f;",
        _lanes(width, "squares += (from[i] - mean) * (from[i] - mean);"),
        f"const float found = {found if piece.kind == 'var' else f'sqrtf({found})'};",
        "if (lane == 0) out[0] = found;",
    ]


def _reduced(piece: RowOperator, named: dict[str, str]) -> list[str]:
    width = piece.x.width
    if piece.kind == "amax":
        return [*_exponentials(width), "if (lane == 0) out[0] = most;"]
    if piece.kind == "amin":
        return [
            "float most = -INFINITY;  // of the negative elements",
            _lanes(width, "most = -from[i] > most || from[i] != from[i] ? -from[i] : most;"),
            "most = most_of_warp(most);",
            "if (lane == 0) out[0] = -most;",
        ]
    root = piece.kind == "linalg_vector_norm"
    mean = f" / {width}.0f" if piece.kind == "mean" else ""
    return [
        "float total = 0.0f;",
        _lanes(width, "total += from[i] * from[i];" if root else "total += from[i];"),
        f"total = {'sqrtf(sum_of_warp(total))' if root else 'sum_of_warp(total)'};",
        f"if (lane == 0) out[0] = total{mean};",
    ]


def row_lines(piece: RowOperator, named: dict[str, str]) -> list[str]:
    """Returns statements that read the row from `from` and write to `out`. `named` maps graph values to the names of their pointers."""
    return KINDS.get(piece.kind, _reduced)(piece, named)


KINDS = {"layer_norm": _layer_norm, "softmax": _softmax, "log_softmax": _log_softmax, "logsumexp": _logsumexp, "var": _variance, "std": _variance}
