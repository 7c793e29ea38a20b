"""Determines which operators reduce over which axes of which tensor, and thus whether two reductions can share a pass over a row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from compiler.graph.network import Network, plain
from verifier.graph import Node


@dataclass(frozen=True)
class Reduction:
    """A reduction over `inner`, which are parts of the axes of a tensor with shape `shape`. `splits` divides axes in two: (axis, outer size, inner
    size)."""

    shape: tuple[int, ...]
    inner: frozenset[tuple[int, int]]  # (axis, part); the part is 0 if the axis is not split
    splits: tuple[tuple[int, int, int], ...] = ()
    scan: bool = False


ROWWISE = {"softmax", "log_softmax", "_softmax", "_log_softmax"}
OVER_DIMS = {"mean", "sum", "amax", "amin", "var", "std", "logsumexp", "linalg_vector_norm"}
TRAILING = {"layer_norm", "rms_norm"}
PLACES = {"argmax", "argmin"}
BATCH_NORM = {"_native_batch_norm_legit_functional", "_native_batch_norm_legit"}  # with and without running statistics
POOLS = {"max_pool2d", "avg_pool2d"}


def short(node: Node) -> str:
    return node.op.split(".")[1] if "." in node.op else node.op


def reduction(network: Network, node: Node) -> Reduction | None:
    """Returns the reduction that `node` performs, or None if it performs none or an unsupported one."""
    name = short(node)
    if not node.args or not isinstance(node.args[0], dict) or "ref" not in node.args[0]:
        return None
    shape = network.spec(node.args[0]["ref"]).shape
    rank = len(shape)
    if name in ROWWISE:
        return over(shape, [node.args[1]])
    if name in OVER_DIMS:
        dims = reduced_dims(node, rank)
        return over(shape, dims) if dims is not None else None
    if name in PLACES:
        dim = plain(node.args[1]) if len(node.args) > 1 else None
        return over(shape, range(rank) if dim is None else [dim])
    if name in TRAILING:
        return over(shape, range(rank - len(node.args[1]), rank))
    if name == "group_norm":
        groups = node.args[1]
        inner = {(1, 1)} | {(axis, 0) for axis in range(2, rank)}
        return Reduction(shape, frozenset(inner), ((1, groups, shape[1] // groups),))
    if name in BATCH_NORM and node.args[-3] is True:
        return over(shape, [axis for axis in range(rank) if axis != 1])
    if name == "cross_entropy_rows":
        return over(shape, [1])
    if name == "mean_counted":
        return over(shape, [0])
    if name == "cumsum" and rank and node.args[1] % rank == rank - 1:
        return Reduction(shape, frozenset({(rank - 1, 0)}), scan=True)
    if name in POOLS and rank == 4:
        return pool(node, shape)
    return None


def over(shape: tuple[int, ...], dims: Iterable[int]) -> Reduction | None:
    rank = len(shape)
    return Reduction(shape, frozenset((dim % rank, 0) for dim in dims)) if rank else None


def reduced_dims(node: Node, rank: int) -> list[int] | None:
    name, rest = short(node), [plain(a) for a in node.args[1:]]
    if name == "linalg_vector_norm":
        if (rest[0] if rest else 2) not in (1, 2, 1.0, 2.0):
            return None
        dims = rest[1] if len(rest) > 1 else None
    elif node.op.endswith(".default") and name in ("mean", "sum", "var", "std"):
        dims = None
    else:
        dims = rest[0] if rest else None
    if dims is None or dims == []:
        return list(range(rank))
    return [dims] if isinstance(dims, int) else list(dims)


def pool(node: Node, shape: tuple[int, ...]) -> Reduction | None:
    """Handles pooling over adjacent windows, which is a reduction over the axes of the window."""
    args = [*node.args[1:], *[None] * 6]
    kernel = pair(args[0])
    stride = pair(args[1]) if args[1] else kernel
    if kernel != stride or (args[2] and pair(args[2]) != (0, 0)):
        return None
    if short(node) == "avg_pool2d" and (args[3] or args[5]):  # ceil mode, custom divisor
        return None
    if short(node) == "max_pool2d" and ((args[3] and pair(args[3]) != (1, 1)) or args[4]):
        return None
    if shape[2] < kernel[0] or shape[3] < kernel[1]:
        return None
    splits = tuple((axis, shape[axis] // size, size) for axis, size in zip((2, 3), kernel, strict=True))
    return Reduction(shape, frozenset({(2, 1), (3, 1)}), splits)


def pair(value: int | Sequence[int]) -> tuple[int, int]:
    values = [value, value] if isinstance(value, int) else list(value) * (2 if len(value) == 1 else 1)
    return values[0], values[1]
