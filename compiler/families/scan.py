"""Running sums and products along an axis: from either end, inclusive or exclusive, with a mask or scaling on the input and the output.

Along the last axis, each block processes one row. Its threads load groups of four neighbouring elements, and issue all loads of a tile before the
first sum. The prefix of each group is computed first within its warp, then across the block. Rows that are longer than a tile are processed tile by
tile. Along any other axis, each thread processes one column, and neighbouring threads process neighbouring columns. Sums and products are computed in
double precision and rounded only when they are stored.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.families.family import Cost, Match, Printed, Printers, Setting, Work, plain_cost
from compiler.families.pool import one_kernel
from compiler.graph.constants import CONSTANTS
from compiler.graph.ir import product
from compiler.graph.network import Network, plain
from compiler.graph.reductions import short
from compiler.kernel.builder import Refused
from compiler.kernel.functions import CUDA
from compiler.kernel.text import below, beyond, free, shift, times
from verifier.graph import Node

HOW = {"cumsum": ("Adds", "+="), "cumprod": ("Multiplies", "*=")}
NEUTRAL = {"cumsum": 0, "cumprod": 1}
RESERVED = ("x", "row", "outer", "inner", "column", "thread", "tile", "carry", "total", "value", "four", "before", "group", "lane", "at", "place",
            "running", "step", "elements", "found")  # fmt: skip
HOW_IT_GOES_ON = """\
// How a running {noun} goes on, and what it begins with.
struct {name} {{
    static __device__ __forceinline__ double join(double a, double b) {{ return a {sign} b; }}
    static __device__ __forceinline__ double none() {{ return {neutral}; }}
}};
"""
JOINS = {
    "cumsum": HOW_IT_GOES_ON.format(noun="sum", name="Adds", sign="+", neutral="0.0"),
    "cumprod": HOW_IT_GOES_ON.format(noun="product", name="Multiplies", sign="*", neutral="1.0"),
}
BEFORE = """\
// `before` holds what GROUPS groups of elements come to, group k of thread t being number k * THREADS + t of the tile. Each becomes what all
// groups before it come to; `total` is that of the whole tile.
template <class How, int THREADS, int GROUPS> __device__ __forceinline__ void before_in_tile(double (&before)[GROUPS], double& total) {
    constexpr int WARPS = THREADS / 32, COUNT = GROUPS * WARPS, EACH = (COUNT + 31) / 32;
    __shared__ double of_warp[COUNT + 1];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    __syncthreads();  // the tile before may still be read
#pragma unroll
    for (int group = 0; group < GROUPS; ++group) {
        double inclusive = before[group];
        for (int step = 1; step < 32; step *= 2) {
            const double other = __shfl_up_sync(0xffffffffu, inclusive, step);
            if (lane >= step) inclusive = How::join(other, inclusive);
        }
        if (lane == 31) of_warp[group * WARPS + warp] = inclusive;
        const double exclusive = __shfl_up_sync(0xffffffffu, inclusive, 1);
        before[group] = lane > 0 ? exclusive : How::none();
    }
    __syncthreads();
    if (warp == 0) {
        double inclusive = How::none();
        for (int at = lane * EACH; at < (lane + 1) * EACH && at < COUNT; ++at) inclusive = How::join(inclusive, of_warp[at]);
        for (int step = 1; step < 32; step *= 2) {
            const double other = __shfl_up_sync(0xffffffffu, inclusive, step);
            if (lane >= step) inclusive = How::join(other, inclusive);
        }
        double running = __shfl_up_sync(0xffffffffu, inclusive, 1);
        if (lane == 0) running = How::none();
        for (int at = lane * EACH; at < (lane + 1) * EACH && at < COUNT; ++at) {
            const double value = of_warp[at];
            of_warp[at] = running;
            running = How::join(running, value);
        }
        if (lane == 31) of_warp[COUNT] = inclusive;
    }
    __syncthreads();
#pragma unroll
    for (int group = 0; group < GROUPS; ++group) before[group] = How::join(of_warp[group * WARPS + warp], before[group]);
    total = of_warp[COUNT];
}
"""
# A match: its members, its value and the value that it reads, whether it runs from the last element, and whether each result excludes its own
# element.
Around = tuple[tuple[str, ...], str, str, bool, bool]


@dataclass(frozen=True)
class Along:
    kind: str  # "cumsum" or "cumprod"
    outer: int
    length: int
    inner: int
    reverse: bool = False  # whether it runs from the last element to the first
    exclusive: bool = False  # whether each result covers only the elements before it


class Scan:
    name = "scan"
    strategies = ("own-scan", "fuse-pointwise")

    def match(self, network: Network, node: Node, setting: Setting) -> Match | None:
        kind = short(node)
        if kind not in HOW:
            return None
        shape = node.outputs[0].shape
        rank = len(shape)
        source = node.args[0]["ref"]
        if rank == 0 or product(shape) == 0 or any(network.spec(name).dtype != "float32" for name in (source, node.name)):
            raise Refused(f"{kind} of nothing, or of other types than float32")
        axis = plain(node.args[1]) % rank
        found = turned(network, node, axis) or shifted(network, node, axis) or ((node.name,), node.name, source, False, False)
        members, value, source, reverse, exclusive = found
        layout, shape = network.layouts[source], network.spec(value).shape
        if not layout.contiguous or layout.offset:
            raise Refused(f"{kind} of a view with gaps")
        along = Along(kind, product(shape[:axis]), shape[axis], product(shape[axis + 1 :]), reverse, exclusive)
        columns = along.outer * along.inner
        if along.inner > 1 and columns < setting.figures.units * 64:
            raise Refused(f"{kind} over a few long columns that lie across memory")
        if columns >= 2**30 or along.length >= 2**30:
            raise Refused(f"{kind} over more than 2^30 rows, or rows of more than 2^30 elements")
        groups = tuple(count for count in (axis, 1, rank - axis - 1) if count)
        return Match(
            family=self.name, anchor=node.name, members=members, value=value, reads=(source,), groups=groups, detail=along,
            prologue=(source,) if layout.base == source else (), prologue_groups=groups, reserved=RESERVED,
        )  # fmt: skip

    def cost(self, work: Work) -> Cost:
        along: Along = work.detail
        return plain_cost(work, along.outer * along.length * along.inner)

    def knobs(self, work: Work) -> dict[str, tuple[tuple[int, ...], int]]:
        along: Along = work.detail
        if along.inner > 1:
            return {"block": ((64, 128, 256), work.knob("block", 128)), "unroll": ((1, 4, 8, 16), work.knob("unroll", 8))}
        threads, groups = tile_of(work)
        return {"block": ((128, 256, 512), threads), "groups": ((1, 2, 4, 8), groups)}

    @property
    def printers(self) -> Printers:
        return {"cuda": self.print_cuda}

    def print_cuda(self, work: Work) -> Printed:
        return down(work) if work.detail.inner > 1 else across(work)


def turned(network: Network, node: Node, axis: int) -> Around | None:
    """Matches flip(cumsum(flip(x))) along the same axis: a scan from the last element to the first."""
    first = network.nodes.get(node.args[0]["ref"])
    last = network.nodes[network.users[node.name][0]] if len(network.users[node.name]) == 1 and node.name not in network.results else None
    if first is None or last is None or short(first) != "flip" or short(last) != "flip" or first.name in network.results:
        return None
    rank = len(node.outputs[0].shape)
    if any([d % rank for d in plain(flip.args[1])] != [axis] for flip in (first, last)) or network.users[first.name] != [node.name]:
        return None
    return (first.name, node.name, last.name), last.name, first.args[0]["ref"], True, False


def shifted(network: Network, node: Node, axis: int) -> Around | None:
    """Matches an exclusive scan, which starts with zero and omits the last element: cat((zeros, cumsum(x[..., :-1])))."""
    cut = network.nodes.get(node.args[0]["ref"])
    users = network.users[node.name]
    if cut is None or cut.op != "aten.slice.Tensor" or len(users) != 1 or node.name in network.results or network.users[cut.name] != [node.name]:
        return None
    whole, joined = cut.args[0]["ref"], network.nodes[users[0]]
    shape, rank = network.spec(whole).shape, len(node.outputs[0].shape)
    if short(joined) != "cat" or len(joined.args[0]) != 2 or joined.args[0][1] != {"ref": node.name} or joined.outputs[0].shape != shape:
        return None
    begin, end = plain(cut.args[2]) if len(cut.args) > 2 else 0, plain(cut.args[3]) if len(cut.args) > 3 else shape[axis]
    along = plain(joined.args[1]) % rank if len(joined.args) > 1 else 0
    end = end + shape[axis] if end < 0 else end
    if (plain(cut.args[1]) % rank, begin or 0, end, along) != (axis, 0, shape[axis] - 1, axis) or plain(cut.args[4] if len(cut.args) > 4 else 1) != 1:
        return None
    head = network.nodes.get(joined.args[0][0]["ref"])
    if head is None or short(head) not in CONSTANTS or short(head) != "full" or plain(head.args[1]) != NEUTRAL[short(node)]:
        return None
    return (node.name, joined.name), joined.name, whole, False, True


def tile_of(work: Work) -> tuple[int, int]:
    """Returns the number of threads per block and the number of groups of four elements per thread and tile."""
    quarters = -(-work.detail.length // 4)
    threads = 256 if quarters >= 512 else 128
    threads = work.knob("block", threads)
    return threads, work.knob("groups", max(1, min(4, quarters // threads)))


def across(work: Work) -> Printed:
    """Prints a scan along the last axis, with one row per block."""
    along: Along = work.detail
    threads, groups = tile_of(work)
    tile, n, prologue = threads * groups * 4, along.length, work.prologues.get(work.match.reads[0])
    how, step = HOW[along.kind]
    neutral = f"{float(NEUTRAL[along.kind])}f"
    inside, count = below("at", n), free(n - 1, "count")
    tiled, wide = n > tile, n % 4 == 0
    lines = ["const int thread = threadIdx.x;", *(["const long row = blockIdx.x;"] if along.outer > 1 else [])]
    base = f"{times('row', n)} + " if along.outer > 1 else ""
    texts = (["row" if along.outer > 1 else "0"] if len(work.match.groups) > 1 else []) + ["place"]
    pad = "    " if tiled else ""
    if tiled:
        lines += [f"double carry = {how}::none();", f"for (int tile = 0; tile < {n}; tile += {tile}) {{"]
    begin = f"{'tile + ' if tiled else ''}({times('group', threads)} + thread) * 4"
    load = [f"float elements[{groups}][4];", f"double before[{groups}], total;"]
    load += ["#pragma unroll", f"for (int group = 0; group < {groups}; ++group) {{", f"    const int at = {begin};"]
    guarded = n % tile != 0
    if wide and prologue is None:
        load.append("    alignas(16) float four[4] = {};" if guarded else "    alignas(16) float four[4];")
        first = f"{shift(n - 4)} - at" if along.reverse else "at"
        load.append(f"    {f'if ({inside}) ' if guarded else ''}*(float4*)four = *(const float4*)(x + {base}{first});")
        load.append("#pragma unroll")
        taken = "four[3 - lane]" if along.reverse else "four[lane]"
        taken = f"{inside} ? {taken} : {neutral}" if guarded and NEUTRAL[along.kind] else taken
        load.append(f"    for (int lane = 0; lane < 4; ++lane) elements[group][lane] = {taken};")
    else:
        load += ["#pragma unroll", "    for (int lane = 0; lane < 4; ++lane) {"]
        load.append(f"        const int place = {f'{count} - at - lane' if along.reverse else 'at + lane'};")
        load.append(f"        elements[group][lane] = {neutral};" if guarded else "")
        opened = f"if ({below('at + lane', n)}) {{" if guarded else "{"
        found = ["const float value = x[" + base + "place];"] if prologue is None else prologue.statements(CUDA, texts, "value")
        load += [f"        {opened}", *(f"            {line}" for line in found), "            elements[group][lane] = value;", "        }", "    }"]
    load.append(f"    before[group] = {how}::none();")
    load += ["#pragma unroll", f"    for (int lane = 0; lane < 4; ++lane) before[group] {step} (double)elements[group][lane];", "}"]
    load.append(f"before_in_tile<{how}, {threads}, {groups}>(before, total);")
    load += ["#pragma unroll", f"for (int group = 0; group < {groups}; ++group) {{", f"    const int at = {begin};"]
    load.append(f"    double running = {f'{how}::join(carry, before[group])' if tiled else 'before[group]'};")
    update = f"running {step} (double)elements[group][lane];"
    vector = wide and work.tail.plain
    if vector:
        to = "four[3 - lane]" if along.reverse else "four[lane]"
        stored = [f"{to} = (float)running;", update] if along.exclusive else [update, f"{to} = (float)running;"]
        load += ["    alignas(16) float four[4];", "#pragma unroll", "    for (int lane = 0; lane < 4; ++lane) {"]
        out = work.tail.kernel.stores[0].access.argument
        first = f"{shift(n - 4)} - at" if along.reverse else "at"
        load += [*(f"        {line}" for line in stored), "    }"]
        load.append(f"    {f'if ({inside}) ' if guarded else ''}*(float4*)({out} + {base}{first}) = *(const float4*)four;")
    else:
        load += ["#pragma unroll", "    for (int lane = 0; lane < 4; ++lane) {"]
        load += [f"        if ({beyond('at + lane', n)}) break;"] if guarded else []
        load.append(f"        const int place = {f'{count} - at - lane' if along.reverse else 'at + lane'};")
        declared = "const float found = (float)running;"
        body = [declared, update] if along.exclusive else [update, declared]
        load += [f"        {line}" for line in [*body, *work.tail.statements(CUDA, texts, "found")]]
        load.append("    }")
    load.append("}")
    load += [f"carry = {how}::join(carry, total);"] if tiled else []
    lines += [line if line.startswith("#") else pad + line for line in load if line] + (["}"] if tiled else [])
    arguments = work.arguments(("x", work.match.reads[0]))
    source = one_kernel(lines, arguments, along.outer, threads)
    by = f"tiles of {tile} elements, four times {groups} a thread" if tiled else f"four times {groups} elements a thread"
    return Printed(source, arguments, shared=[JOINS[along.kind], BEFORE], comment=[f"{describe(along)}; one block of {threads} threads a row, {by}."])


def down(work: Work) -> Printed:
    """Prints a scan along any other axis, with one column per thread."""
    along: Along = work.detail
    threads, columns, n = work.knob("block", 128), along.outer * along.inner, along.length
    how, step = HOW[along.kind]
    prologue, count = work.prologues.get(work.match.reads[0]), free(n - 1, "count")
    lines = [f"const int column = {times('blockIdx.x', threads)} + threadIdx.x;"]
    lines += [f"if ({beyond('column', columns)}) return;"] if columns % threads else []
    lines.append(f"const int inner = column % {along.inner};" if along.outer > 1 else "const int inner = column;")
    lines += [f"const long outer = column / {along.inner};"] if along.outer > 1 else []
    texts = (["outer" if along.outer > 1 else "0"] if len(work.match.groups) > 2 else []) + ["place", "inner"]
    place = f"({times('outer', n)} + place)" if along.outer > 1 else "(long)place"
    found = [f"const float value = x[{times(place, along.inner)} + inner];"] if prologue is None else prologue.statements(CUDA, texts, "value")
    update, declared = f"running {step} (double)value;", "const float found = (float)running;"
    lines += [f"double running = {float(NEUTRAL[along.kind])};", f"#pragma unroll {work.knob('unroll', 8)}"]
    lines += [f"for (int step = 0; step < {n}; ++step) {{", f"    const int place = {f'{count} - step' if along.reverse else 'step'};"]
    body = [*found, *([declared, update] if along.exclusive else [update, declared]), *work.tail.statements(CUDA, texts, "found")]
    lines += [*(f"    {line}" for line in body), "}"]
    arguments = work.arguments(("x", work.match.reads[0]))
    source = one_kernel(lines, arguments, -(-columns // threads), threads)
    return Printed(source, arguments, comment=[f"{describe(along)}; one thread a column, {-(-columns // threads)} blocks of {threads} threads."])


def describe(along: Along) -> str:
    rows = along.outer * along.inner
    way = ", from the last element to the first" if along.reverse else ", without the element itself" if along.exclusive else ""
    return f"{'products' if along.kind == 'cumprod' else 'sums'} over {rows} rows of {along.length}{way}"
