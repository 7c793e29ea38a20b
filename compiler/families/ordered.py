"""Sorts along the last dimension: sort, argsort and topk, if either the values or the indices are read, but not both.

A block keeps one row, or several short rows, in shared memory. Each element becomes an integer key. The upper part sorts in the same order as the
values do in PyTorch; the lower part is the element's index in the row. Equal elements therefore keep their order, and one exchange moves the value
and the index together. A bitonic network sorts the keys. The output values are then reloaded by index, so their bits are unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.families.family import NAME, Cost, Match, Printed, Printers, Setting, Work, plain_cost
from compiler.families.pool import one_kernel, parameters
from compiler.graph.ir import product
from compiler.graph.network import Network, plain
from compiler.graph.reductions import short
from compiler.kernel.builder import Refused
from compiler.kernel.functions import CPP, CUDA
from compiler.kernel.text import below, beyond, known, times
from verifier.graph import Node

LONGEST = 2048  # elements per row; their keys take 16 KiB of shared memory (or of a CPU thread's stack)
RESERVED = ("x", "row", "first", "at", "place", "from", "value", "found", "key", "keys", "size", "step", "pair", "low", "high", "left", "right")
ORDER = """\
// An element as a whole number that orders as it does: zeros of either sign are equal, NaN is the largest.
{qualifiers} unsigned order_of(float value) {{
    const float unsigned_zero = value == 0.0f ? 0.0f : value;
    {bits}
    return value != value ? 0xffffffffu : bits >> 31 ? ~bits : bits | 0x80000000u;
}}
"""
ORDER_CUDA = ORDER.format(qualifiers="__device__ __forceinline__", bits="const unsigned bits = __float_as_uint(unsigned_zero);")
ORDER_CPP = ORDER.format(qualifiers="static inline", bits="unsigned bits;\n    __builtin_memcpy(&bits, &unsigned_zero, 4);")
NETWORK = """\
// The smallest first in each run of LENGTH keys (a power of two), by a bitonic network; all threads of the block call it.
template <int THREADS, int LENGTH, int COUNT> __device__ __forceinline__ void sort_runs(unsigned long long* keys) {
    for (int size = 2; size <= LENGTH; size *= 2) {
        for (int step = size / 2; step > 0; step /= 2) {
            __syncthreads();
            for (int pair = threadIdx.x; pair < COUNT / 2; pair += THREADS) {
                const int low = pair / step * step * 2 + pair % step, high = low + step;
                const unsigned long long left = keys[low], right = keys[high];
                if ((left > right) == ((low & (LENGTH - 1) & size) == 0)) keys[low] = right, keys[high] = left;
            }
        }
    }
    __syncthreads();
}
"""


@dataclass(frozen=True)
class Ordered:
    rows: int
    length: int
    kept: int  # number of elements kept from the start of each sorted row
    descending: bool
    places: bool  # whether the result is the elements' original indices

    @property
    def run(self) -> int:
        """Keys per row: a power of two."""
        return 1 << (self.length - 1).bit_length()


class Order:
    name = "order"
    strategies = ("own-order", "fuse-pointwise")

    def match(self, network: Network, node: Node, setting: Setting) -> Match | None:
        if short(node) not in ("sort", "topk"):
            return None
        source = node.args[0]["ref"]
        shape = network.spec(source).shape
        found = {user.args[1]: user.name for user in (network.nodes[name] for name in network.users[node.name]) if user.op == "getitem"}
        if len(found) != 1 or node.name in network.results or len(network.users[node.name]) != 1:
            raise Refused("an order of which both values and places are read")
        if not shape or network.spec(source).dtype != "float32":
            raise Refused("an order of one number, or of other types than float32")
        axis, kept, descending = read_order(node, shape)
        if axis != len(shape) - 1 or not 2 <= shape[-1] <= LONGEST or kept < 1 or product(shape) >= 2**31:
            raise Refused(f"an order of other rows than those of 2 to {LONGEST} elements side by side")
        layout, (which, value) = network.layouts[source], next(iter(found.items()))
        if not layout.contiguous or layout.offset:
            raise Refused("an order of a view with gaps")
        groups = tuple(count for count in (len(shape) - 1, 1) if count)
        return Match(
            family=self.name, anchor=node.name, members=(node.name, value), value=value, reads=(source,), groups=groups,
            detail=Ordered(product(shape[:-1]), shape[-1], kept, descending, which == 1), prologue=(source,) if layout.base == source else (),
            prologue_groups=groups, recompute=1.0 if which == 1 else 1 + kept / shape[-1], reserved=RESERVED,
        )  # fmt: skip

    def cost(self, work: Work) -> Cost:
        ordered: Ordered = work.detail
        levels = ordered.run.bit_length() - 1
        return plain_cost(work, ordered.rows * ordered.run * levels * (levels + 1) // 4)

    def knobs(self, work: Work) -> dict[str, tuple[tuple[int, ...], int]]:
        return {} if work.setting.figures.kind == "cpu" else {"block": ((64, 128, 256, 512), work.knob("block", 256))}

    @property
    def printers(self) -> Printers:
        return {"cuda": self.print_cuda, "cpp": self.print_cpp}

    def print_cuda(self, work: Work) -> Printed:
        ordered: Ordered = work.detail
        threads, run, kept = work.knob("block", 256), ordered.run, ordered.kept
        together = max(1, min(ordered.rows, 2 * threads // run))
        keys, grid = together * run, -(-ordered.rows // together)
        inside = [f"place < {ordered.length}"] * (run > ordered.length) + [below("row", ordered.rows)] * (ordered.rows % together > 0)
        condition = f"if ({' && '.join(inside)}) " if inside else ""
        lines = [
            f"__shared__ unsigned long long keys[{known(keys)}];",
            f"const int first = {times('blockIdx.x', together)};",
            f"for (int at = threadIdx.x; at < {known(keys)}; at += {threads}) {{",
            f"    const int place = at % {known(run)}, row = first + at / {known(run)};",
            "    unsigned long long key = ~0ull;  // behind all others",
            f"    {condition}{{",
            *(f"        {line}" for line in key_of(work, CUDA, "key =")),
            "    }",
            "    keys[at] = key;",
            "}",
            f"sort_runs<{threads}, {known(run)}, {known(keys)}>(keys);",
            f"for (int at = threadIdx.x; at < {known(together * kept)}; at += {threads}) {{",
            f"    const int place = at % {known(kept)}, row = first + at / {known(kept)};",
            *([f"    if ({beyond('row', ordered.rows)}) break;"] if ordered.rows % together else []),
            *(f"    {line}" for line in taken(work, CUDA, f"keys[at / {known(kept)} * {known(run)} + place]")),
            "}",
        ]
        arguments = work.arguments(("x", work.match.reads[0]))
        by = f"{together} rows a block" if together > 1 else "a row a block"
        comment = [f"{describe(ordered)}; {grid} blocks of {threads} threads, {by}, {keys * 8 / 1024:.1f} KiB of shared memory."]
        return Printed(one_kernel(lines, arguments, grid, threads), arguments, shared=[ORDER_CUDA, NETWORK], comment=comment)

    def print_cpp(self, work: Work) -> Printed:
        ordered: Ordered = work.detail
        arguments = work.arguments(("x", work.match.reads[0]))
        behind = "keys" if ordered.kept == ordered.length else f"keys, keys + {ordered.kept}"
        lines = [
            f'extern "C" void {NAME}({parameters(arguments, "__restrict")}) {{',
            "#pragma omp parallel for schedule(static)",
            f"    for (long row = 0; row < {ordered.rows}; ++row) {{",
            f"        unsigned long long keys[{ordered.length}];",
            f"        for (int place = 0; place < {ordered.length}; ++place) {{",
            *(f"            {line}" for line in key_of(work, CPP, "keys[place] =")),
            "        }",
            f"        std::{'sort' if behind == 'keys' else 'partial_sort'}({behind}, keys + {ordered.length});",
            f"        for (int place = 0; place < {ordered.kept}; ++place) {{",
            *(f"            {line}" for line in taken(work, CPP, "keys[place]")),
            "        }",
            "    }",
            "}",
            "",
        ]
        return Printed(
            ["\n".join(lines)], arguments, shared=[ORDER_CPP], includes=["algorithm"], comment=[f"{describe(ordered)}; rows over threads."]
        )


def read_order(node: Node, shape: tuple[int, ...]) -> tuple[int, int, bool]:
    """Returns the axis, the number of elements kept along it, and whether the largest come first. Raises `Refused` if the order is unspecified."""
    named = {name: plain(value) for name, value in node.kwargs.items()}
    args = [plain(value) for value in node.args[1:]]
    names = {"aten.sort.stable": (), "aten.sort.default": ("dim", "descending")}.get(node.op, ("k", "dim", "largest", "sorted"))
    said = {"dim": -1, "descending": False, "largest": True, "sorted": True} | dict(zip(names, args, strict=False)) | named
    axis = said["dim"] % len(shape)
    if short(node) == "sort":
        return axis, shape[axis], bool(said["descending"])
    if not said["sorted"]:
        raise Refused("the largest in no order")
    return axis, said["k"], bool(said["largest"])


def element(work: Work, functions: dict[str, str], place: str) -> list[str]:
    """Returns lines that declare `value`, the row's element at `place`."""
    ordered: Ordered = work.detail
    prologue = work.prologues.get(work.match.reads[0])
    if prologue is not None:
        return prologue.statements(functions, [*["row"] * (len(work.match.groups) - 1), place], "value")
    return [f"const float value = x[{times('(long)row', ordered.length)} + {place}];"]


def key_of(work: Work, functions: dict[str, str], into: str) -> list[str]:
    order = "~order_of(value)" if work.detail.descending else "order_of(value)"
    return [*element(work, functions, "place"), f"{into} (unsigned long long)({order}) << 32 | (unsigned)place;"]


def taken(work: Work, functions: dict[str, str], key: str) -> list[str]:
    """Returns lines that compute and store the result for the key at `place`."""
    lines = [f"const int from = (int)(unsigned){key};"]
    if not work.detail.places:
        lines += element(work, functions, "from")
    texts = [*["row"] * (len(work.match.groups) - 1), "place"]
    return [*lines, *work.tail.statements(functions, texts, "from" if work.detail.places else "value")]


def describe(ordered: Ordered) -> str:
    way = "the largest first" if ordered.descending else "the smallest first"
    kept = "" if ordered.kept == ordered.length else f" {ordered.kept} of"
    return f"{'places' if ordered.places else 'values'} of{kept} {ordered.length} elements in {ordered.rows} rows, {way}"
