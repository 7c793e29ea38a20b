"""The source text of the kernel for a loop; stepped.py explains how it works."""

from __future__ import annotations

from compiler.families.family import NAME, Packed, Printed, Work
from compiler.families.pool import parameters
from compiler.families.stepped.block import Block, padded
from compiler.families.stepped.passes import Stack
from compiler.families.stepped.pieces import Body, Loop, Operand, Piece, Product, RowOperator, Slot
from compiler.families.stepped.rows_cuda import ROWWISE, row_lines
from compiler.families.text import indented
from compiler.graph.ir import Argument
from compiler.graph.network import count
from compiler.kernel.expressions import POINTED
from compiler.kernel.functions import CUDA
from compiler.kernel.text import Launch, Launcher, plain

AHEAD = 16  # lines of a matrix in the L2 cache that a thread reads at once; those in shared memory arrive sooner

PRODUCT = """\
template <int WIDE> __device__ __forceinline__ void load_columns(float (&into)[WIDE], const float* from) {
    if constexpr (WIDE == 4) {
        const float4 found = *(const float4*)from;
        into[0] = found.x, into[1] = found.y, into[2] = found.z, into[3] = found.w;
    } else {
#pragma unroll
        for (int n = 0; n < WIDE; ++n) into[n] = from[n];
    }
}

// The product of ROWS rows of `x` with a matrix of DEPTH x COLUMNS. A thread has WIDE columns and one of PARTS parts of the depth, whose sums
// are added through `parts`. It reads AHEAD lines of the matrix at once. The rows of `x` begin at multiples of 16 bytes if ALIGNED.
template <int THREADS, int ROWS, int DEPTH, int COLUMNS, int WIDE, int PARTS, int AHEAD, bool ALIGNED>
__device__ __forceinline__ void multiply_rows(const float* weight, const float* x, int x_pitch, const float* bias, float* out, int out_pitch,
                                              float* parts) {
    constexpr int GROUPS = COLUMNS / WIDE, SPAN = ((DEPTH + PARTS - 1) / PARTS + AHEAD - 1) / AHEAD * AHEAD;
    for (int place = threadIdx.x; place < GROUPS * PARTS; place += THREADS) {
        const int column = place % GROUPS * WIDE, part = place / GROUPS;
        const int end = DEPTH < (part + 1) * SPAN ? DEPTH : (part + 1) * SPAN;
        float sum[ROWS][WIDE] = {};
        int k = part * SPAN;
        for (; k + AHEAD <= end; k += AHEAD) {
            float own[AHEAD][WIDE];
#pragma unroll
            for (int n = 0; n < AHEAD; ++n) load_columns<WIDE>(own[n], weight + (k + n) * COLUMNS + column);
#pragma unroll
            for (int row = 0; row < ROWS; ++row) {
                float of_x[AHEAD];
#pragma unroll
                for (int n = 0; n < AHEAD; n += 4) {
                    float four[4];
                    if constexpr (ALIGNED) load_columns<4>(four, x + row * x_pitch + k + n);
                    else for (int m = 0; m < 4; ++m) four[m] = x[row * x_pitch + k + n + m];
#pragma unroll
                    for (int m = 0; m < 4; ++m) of_x[n + m] = four[m];
                }
#pragma unroll
                for (int n = 0; n < AHEAD; ++n)
#pragma unroll
                    for (int at = 0; at < WIDE; ++at) sum[row][at] = fmaf(of_x[n], own[n][at], sum[row][at]);
            }
        }
        for (; k < end; ++k)
#pragma unroll
            for (int row = 0; row < ROWS; ++row)
#pragma unroll
                for (int at = 0; at < WIDE; ++at) sum[row][at] = fmaf(x[row * x_pitch + k], weight[k * COLUMNS + column + at], sum[row][at]);
#pragma unroll
        for (int row = 0; row < ROWS; ++row)
#pragma unroll
            for (int at = 0; at < WIDE; ++at) {
                if constexpr (PARTS == 1) out[row * out_pitch + column + at] = sum[row][at] + (bias ? bias[column + at] : 0.0f);
                else parts[(part * ROWS + row) * COLUMNS + column + at] = sum[row][at];
            }
    }
    if constexpr (PARTS > 1) {
        __syncthreads();
        for (int at = threadIdx.x; at < ROWS * COLUMNS; at += THREADS) {
            const int row = at / COLUMNS, column = at % COLUMNS;
            float total = bias ? bias[column] : 0.0f;
#pragma unroll
            for (int part = 0; part < PARTS; ++part) total += parts[part * ROWS * COLUMNS + at];
            out[row * out_pitch + column] = total;
        }
    }
}
"""


def printed(work: Work, body: Body, extra: tuple[str, ...], block: Block) -> Printed:
    return SteppedKernel(work, body, extra, block).printed()


class SteppedKernel:
    def __init__(self, work: Work, body: Body, extra: tuple[str, ...], block: Block):
        self.work, self.body, self.block = work, body, block
        network = work.network
        loops = dict.fromkeys(pointer.value for pointer in body.pointers.values())
        vectors = [p.bias for p in body.pieces if isinstance(p, Product)]
        vectors += [name for p in body.pieces if isinstance(p, RowOperator) for name in (p.scale, p.shift)]
        named = {value: f"given_{at}" for at, value in enumerate(dict.fromkeys([*loops, *filter(None, vectors)]))}
        self.named = named
        self.arguments = work.arguments(*((name, value) for value, name in named.items()))
        self.extra = {value: f"result_{at}" for at, value in enumerate(extra)}
        self.arguments += [Argument(name, value, "float32", count(network.spec(value)), written=True) for value, name in self.extra.items()]
        self.weights = {weight: f"matrix_{at}" for at, weight in enumerate(body.weights)}
        self.packed = [Packed(name, (w.value,), w.code, elements=w.depth * w.columns) for w, name in self.weights.items()]
        self.behind: dict[str, str] = {}  # slot written since the threads last met -> how ("loop": one thread an element, in order)
        self.busy = False  # whether threads may still be reading sums over parts

    def printed(self) -> Printed:
        body, block = self.body, self.block
        lines = self.lines()
        taken = [*self.arguments, *(Argument(name, "", "float32", 0, read=True) for name in self.weights.values())]
        names = ", ".join(argument.name for argument in taken)
        head = f"__global__ void __launch_bounds__({block.threads}) {NAME}_kernel({parameters(taken, '__restrict__')}) {{"
        tables = [
            f"static __device__ const {POINTED[table.dtype]} {NAME}_{name}[{len(table.numbers)}] = {{{', '.join(table.numbers)}}};"
            for name, table in body.tables.items()
        ]
        source = "\n".join([*tables, head, *indented(lines), "}", ""])
        shared = block.shared_bytes(body)
        launch = Launch(f"{NAME}_kernel", str(block.blocks(body)), block.threads, names, shared, asks=shared > 46 << 10)
        resident = len(block.resident(body))
        weights = f"{resident} of {len(body.weights)} weight matrices in shared memory" if body.weights else "no weights"
        comment = [
            f"{body.steps} passes over {body.batch} rows: {block.blocks(body)} blocks of {block.threads} threads run all passes of {block.rows} rows "
            f"each; {weights}, {shared / 1024:.0f} KiB of it a block."
        ]  # fmt: skip
        return Printed(
            [plain(source), Launcher(NAME, f"{parameters(taken, '__restrict__')}, void* stream", (launch,))], self.arguments, packed=self.packed,
            shared=[PRODUCT, ROWWISE], comment=comment, kernels=[loop.prologue.kernel for loop in body.loops],
        )  # fmt: skip

    # -- the kernel -----------------------------------------------------------------------------------------------------------

    def lines(self) -> list[str]:
        body, block = self.body, self.block
        return [
            "extern __shared__ __align__(16) float memory[];",
            *self.memory(),
            f"const int first = blockIdx.x * {block.rows};",
            f"const int rows = {body.batch} - first < {block.rows} ? {body.batch} - first : {block.rows};" if body.batch % block.rows
            else f"const int rows = {block.rows};",
            *(f"const {POINTED[self.work.network.spec(p.value).dtype]}* const {p.name} = {self.named[p.value]}"
              + (f" + (long long)first * {p.row};" if p.row else ";") for p in body.pointers.values()),
            *self.begin(),
            "__syncthreads();",
            f"for (int step = 0; step < {body.steps}; ++step) {{",
            *indented(self.step()),
            "}",
            *(line for name, slot in body.finals for line in self.final(name, slot)),
        ]  # fmt: skip

    def memory(self) -> list[str]:
        """Declares the slots, the sums over parts, and the weights that stay in shared memory."""
        body, block = self.body, self.block
        lines, at = [], 0
        for slot in body.slots:
            lines.append(f"float* const {slot.name} = memory + {at};  // {block.rows} rows of {slot.width}")
            at += slot.pitch * block.rows
        if parts := block.parts_floats(body):
            lines.append(f"float* const parts = memory + {at};")
            at += parts
        else:
            lines.append("float* const parts = nullptr;")
        for weight in block.resident(body):
            lines.append(f"float* const kept_{self.weights[weight]} = memory + {at};  // {weight.depth} x {weight.columns}")
            at += padded(weight)
        return lines

    def begin(self) -> list[str]:
        body, block = self.body, self.block
        total = block.slots_floats(body)
        lines = [f"for (int at = threadIdx.x; at < {total}; at += {block.threads}) memory[at] = 0.0f;  // rows beyond the last stay 0"]
        for weight in block.resident(body):
            name = self.weights[weight]
            lines.append(f"for (int at = threadIdx.x; at < {weight.depth * weight.columns}; at += {block.threads}) kept_{name}[at] = {name}[at];")
        lines.append("__syncthreads();")
        for loop in body.begins:
            lines += self.loop(loop)
        for other in body.others:
            lines += self.other(*other)
        return lines

    def step(self) -> list[str]:
        body = self.body
        self.behind, self.busy = {}, False
        lines = [f"const {POINTED[self.work.network.spec(p.value).dtype]}* const {p.name}_now = {p.name} + (long long)step * {p.step};"
                 for p in body.pointers.values() if p.step]  # fmt: skip
        lines += [f"const {POINTED[table.dtype]}* const {name}_now = {NAME}_{name} + step;" for name, table in body.tables.items()]
        stacks = {id(piece): [stack for stack, slot in body.stacks if slot == piece.into] for piece in body.pieces}
        for piece in body.pieces:
            lines += self.piece(piece)
            for stack in stacks[id(piece)]:
                if self.behind.get(piece.into.name) != "loop":
                    lines += self.meet()
                lines += self.stacked(stack, piece.into)
        lines += self.meet()
        for old, new in body.carried:
            lines += self.over(old.width, [f"{old.name}[row * {old.pitch} + i] = {new.name}[row * {new.pitch} + i];"])
        return [*lines, "__syncthreads();"]

    def meet(self) -> list[str]:
        self.behind, self.busy = {}, False
        return ["__syncthreads();"]

    def piece(self, piece: Piece) -> list[str]:
        if isinstance(piece, Loop):
            apart = any(slot in self.behind and not (same and self.behind[slot] == "loop") for slot, same in piece.reads.items())
            lines = [*(self.meet() if apart else []), *self.loop(piece)]
            self.behind[piece.into.name] = "loop"
            return lines
        assert isinstance(piece, (Product, RowOperator))
        lines = self.meet() if piece.x.slot.name in self.behind or self.busy else []
        if isinstance(piece, Product):
            split = self.block.split(piece.weight)
            lines += self.product(piece)
            if split.parts > 1:
                self.behind, self.busy = {}, True
            self.behind[piece.into.name] = "loop" if split.parts > 1 else "product"
        else:
            lines += self.row_operator(piece)
            self.behind[piece.into.name] = "rows"
        return lines

    def over(self, width: int, body: list[str]) -> list[str]:
        """Returns a loop over the block's elements, which form rows of `width`."""
        return [
            f"for (int at = threadIdx.x; at < rows * {width}; at += {self.block.threads}) {{",
            f"    const int row = at / {width}, i = at % {width};" if width > 1 else "    const int row = at, i = 0;",
            *indented(body),
            "}",
        ]

    def loop(self, loop: Loop) -> list[str]:
        texts = ["row", "i"][: len(loop.prologue.groups)]
        slot = loop.into
        return self.over(slot.width, [*loop.prologue.statements(CUDA, texts, "value"), f"{slot.name}[row * {slot.pitch} + i] = value;"])

    def product(self, piece: Product) -> list[str]:
        weight, block = piece.weight, self.block
        split, x = block.split(weight), piece.x
        name = self.weights[weight]
        where = f"kept_{name}" if weight in block.resident(self.body) else name
        aligned = "true" if x.offset % 4 == 0 else "false"
        bias = self.named[piece.bias] if piece.bias else "nullptr"
        ahead = 4 if weight in block.resident(self.body) else AHEAD
        sizes = f"{block.threads}, {block.rows}, {weight.depth}, {weight.columns}, {split.wide}, {split.parts}, {ahead}, {aligned}"
        return [f"multiply_rows<{sizes}>({where}, {self.place(x)}, {x.slot.pitch}, {bias}, {piece.into.name}, {piece.into.pitch}, parts);"]

    def place(self, x: Operand) -> str:
        return f"{x.slot.name} + {x.offset}" if x.offset else x.slot.name

    def row_operator(self, piece: RowOperator) -> list[str]:
        x, out, width = piece.x, piece.into, piece.x.width
        lines = [
            f"const float* const from = {self.place(x)} + row * {x.slot.pitch};",
            f"float* const out = {out.name} + row * {out.pitch};",
            *row_lines(piece, self.named),
        ]
        return [
            f"for (int row = threadIdx.x / 32; row < {self.block.rows}; row += {self.block.threads // 32}) {{  // {piece.kind} of {width}",
            "    const int lane = threadIdx.x % 32;",
            *indented(lines),
            "}",
        ]

    # -- results --------------------------------------------------------------------------------------------------------------

    def stacked(self, stack: Stack, slot: Slot) -> list[str]:
        now = f"({stack.lead + self.body.steps - 1} - step)" if stack.backwards else f"({stack.lead} + step)" if stack.lead else "step"
        return self.part(stack, slot.width, now, [self.held(slot)])

    def part(self, stack: Stack, width: int, part: str, value: list[str]) -> list[str]:
        """Returns a loop that stores `value` as one part of a stack."""
        batch, inner = self.body.batch, "i"
        if stack.steps < stack.rows:  # each row holds its elements of all parts
            if stack.steps < width:
                inner = f"i / {stack.steps} * {stack.parts * stack.steps} + i % {stack.steps}" if stack.steps > 1 else f"i * {stack.parts}"
            texts = ["first + row", f"{part} * {stack.steps} + {inner}" if width > 1 else part]
        else:
            whole = self.work.network.spec(stack.name).shape
            texts = [part, "first + row", "i"] if stack.apart(whole[0], batch) else [f"{part} * {batch} + first + row", "i"]
        return self.result(stack.name, width, texts, f"(long long){part} * {stack.steps} + (long long)(first + row) * {stack.rows} + {inner}", value)

    def other(self, stack: Stack, at: int, loop: Loop) -> list[str]:
        """Returns a loop that stores a part of a stack that no pass computes."""
        texts = ["row", "i"][: len(loop.prologue.groups)]
        outside = ["float outside;", "{", *indented([*loop.prologue.statements(CUDA, texts, "value"), "outside = value;"]), "}"]
        return self.part(stack, loop.into.width, str(at), [*outside, "const float value = outside;"])

    def final(self, name: str, slot: Slot) -> list[str]:
        return self.result(name, slot.width, ["first + row", "i"], f"(long long)(first + row) * {slot.width} + i", [self.held(slot)])

    def held(self, slot: Slot) -> str:
        return f"const float value = {slot.name}[row * {slot.pitch} + i];"

    def result(self, name: str, width: int, texts: list[str], place: str, value: list[str]) -> list[str]:
        """Returns a loop that stores `value` as an element of a result, or computes what depends on it. `texts` are the index variables of the tail,
        and `place` is the position in the result."""
        if name == self.work.match.value:
            return self.over(width, [*value, *self.work.tail.statements(CUDA, texts[: len(self.work.match.groups)], "value")])
        return self.over(width, [*value, f"{self.extra[name]}[{place}] = value;"])
