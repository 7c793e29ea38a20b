"""Maximum, mean and adaptive pooling over windows in one to three dimensions. Windows can overlap, and they can be padded, dilated or cut off at the
border.

Each GPU thread computes a vertical strip of outputs, so the partial result for an input row serves every window that contains the row. Reads along a
row are coalesced, and the L1 cache handles the overlap between threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from compiler.families.family import NAME, Cost, Match, Printed, Printers, Setting, Work, plain_cost
from compiler.families.text import indented
from compiler.graph.ir import FLOATS, Argument, product
from compiler.graph.network import Network, plain
from compiler.graph.reductions import reduction, short
from compiler.kernel.builder import Refused
from compiler.kernel.expressions import POINTED, widened
from compiler.kernel.functions import CPP, CUDA
from compiler.kernel.text import KernelText, Launch, Launcher, Part, below, beyond, end, shift, stride, times
from verifier.graph import Node

AXES = ("d", "h", "w")
UNROLLED = 96  # loops are unrolled up to this number of loads per thread
KINDS = {f"{kind}_pool{rank}d": (kind, rank) for kind in ("max", "avg", "adaptive_avg") for rank in (1, 2, 3)}


@dataclass(frozen=True)
class Window:
    """Sizes over (depth, height, width); dimensions that an operator does not have are 1."""

    mean: bool
    adaptive: bool
    rank: int
    planes: int
    size: tuple[int, int, int]  # input size
    out: tuple[int, int, int]
    kernel: tuple[int, int, int]
    stride: tuple[int, int, int]
    padding: tuple[int, int, int]
    dilation: tuple[int, int, int]
    counts_padding: bool = True
    divisor: int | None = None

    def reach(self, axis: int) -> int:
        return (self.kernel[axis] - 1) * self.dilation[axis] + 1

    def inside(self, axis: int) -> bool:
        """True if every window is entirely inside the input along `axis`."""
        return self.adaptive or self.padding[axis] == 0 and (self.out[axis] - 1) * self.stride[axis] + self.reach(axis) <= self.size[axis]

    @property
    def loads(self) -> float:
        """Average number of times that an input element is read."""
        return product(self.out) * product(self.kernel) / product(self.size)


class Pool:
    name = "pool"
    strategies = ("own-pool", "fuse-pointwise")

    def match(self, network: Network, node: Node, setting: Setting) -> Match | None:
        found = KINDS.get(short(node))
        if found is None or reduction(network, node) is not None:  # the IR expresses pooling over adjacent windows as a row reduction
            return None
        value = node.args[0]["ref"]
        spec = network.spec(value)
        if spec.dtype not in FLOATS:
            raise Refused(f"a pool of {spec.dtype} is left to PyTorch")
        layout = network.layouts[value]
        if not layout.contiguous or layout.offset:
            raise Refused("a pool of a view with gaps is left to PyTorch")
        window = read_window(node, spec.shape, *found)
        lead = len(spec.shape) - found[1]
        groups = (lead, *(1,) * found[1])
        return Match(
            family=self.name, anchor=node.name, members=(node.name,), value=node.name, reads=(value,), groups=groups, detail=window,
            prologue=(value,) if layout.base == value else (), prologue_groups=groups, recompute=window.loads, reserved=RESERVED,
        )  # fmt: skip

    def cost(self, work: Work) -> Cost:
        window: Window = work.detail
        return plain_cost(work, window.planes * product(window.out) * product(window.kernel))

    def knobs(self, work: Work) -> dict[str, tuple[tuple[int, ...], int]]:
        if work.setting.figures.kind == "cpu":
            return {}
        found: dict[str, tuple[tuple[int, ...], int]] = {"block": ((64, 128, 256, 512), work.knob("block", 256))}
        if not work.detail.adaptive and work.detail.out[1] > 1:
            found["strip"] = ((1, 2, 4, 8), strip_of(work))
        return found

    @property
    def printers(self) -> Printers:
        return {"cuda": self.print_cuda, "cpp": self.print_cpp}

    def print_cuda(self, work: Work) -> Printed:
        window: Window = work.detail
        strip, threads = strip_of(work), work.knob("block", 256)
        strips = -(-window.out[1] // strip)
        total = window.planes * window.out[0] * strips * window.out[2]
        kind = "long" if total >= 2**31 - threads else "int"
        body = Body(work, CUDA, strip)
        lines = [
            f"const {kind} at = {times(f'({kind})blockIdx.x', threads)} + threadIdx.x;",
            *([f"if ({beyond('at', total)}) return;"] if total % threads else []),
            f"const int w = at % {window.out[2]};" if window.out[1] * window.out[0] > 1 or window.planes > 1 else "const int w = at;",
        ]
        step = window.out[2]
        if window.rank > 1:
            lines.append(f"const int h = at / {step} % {strips}{f' * {stride(strip)}' if strip > 1 else ''};")
            step *= strips
        if window.rank > 2:
            lines.append(f"const int d = at / {step} % {window.out[0]};")
            step *= window.out[0]
        lines += [f"const int plane = at / {step};", *body.lines()]
        arguments = work.arguments(("x", work.match.reads[0]))
        grid = -(-total // threads)
        source = one_kernel(lines, arguments, grid, threads)
        below = f", {strip} outputs below one another a thread" if strip > 1 else ", one output a thread"
        return Printed(source, arguments, comment=[f"{describe(window)}; {grid} blocks of {threads} threads{below}."])

    def print_cpp(self, work: Work) -> Printed:
        window: Window = work.detail
        arguments = work.arguments(("x", work.match.reads[0]))
        rows = window.planes * window.out[0] * window.out[1]
        lines = ["#pragma omp parallel for schedule(static)", f"for (long row = 0; row < {rows}; ++row) {{"]
        step = 1
        if window.rank > 1:
            lines.append(f"    const int h = row % {window.out[1]};")
            step = window.out[1]
        if window.rank > 2:
            lines.append(f"    const int d = row / {step} % {window.out[0]};")
            step *= window.out[0]
        lines.append(f"    const int plane = row / {step};" if step > 1 else "    const int plane = row;")
        lines.append(f"    for (int w = 0; w < {window.out[2]}; ++w) {{")
        lines += [f"        {line}" for line in Body(work, CPP, 1).lines() if not line.startswith("#")]
        lines += ["    }", "}"]
        source = "\n".join(
            [
                f'extern "C" void {NAME}({parameters(arguments, "__restrict")}) {{',
                *(f"    {line}" if not line.startswith("#") else line for line in lines),
                "}",
                "",
            ]
        )
        return Printed([source], arguments, comment=[f"{describe(window)}; rows of outputs over threads."])


RESERVED = ("x", "image", "plane", "at", "row", "begin", "d", "h", "w", "z", "y", "v", "best", "across", "mean", "counted", "below", "o",
            *(f"{name}_{end}" for name in AXES for end in ("first", "end", "at", "k")))  # fmt: skip


class Body:
    """Prints the loops over the windows of the output at (plane, d, h, w) and the `strip - 1` outputs below it."""

    def __init__(self, work: Work, functions: dict[str, str], strip: int):
        self.work, self.functions, self.strip = work, functions, strip
        self.window: Window = work.detail
        self.value = work.match.reads[0]
        self.prologue = work.prologues.get(self.value)
        self.stored = work.network.spec(self.value).dtype
        self.depth = 0
        self.found: list[str] = []

    def put(self, line: str) -> None:
        self.found.append(line if line.startswith("#") else "    " * self.depth + line)

    def open(self, line: str) -> None:
        self.put(line + " {")
        self.depth += 1

    def close(self) -> None:
        self.depth -= 1
        self.put("}")

    def lines(self) -> list[str]:
        window, strip = self.window, self.strip
        start = "0.0f" if window.mean else "-INFINITY"
        if self.prologue is None:
            self.put(f"const {POINTED[self.stored]}* image = x + {times('(long)plane', product(window.size))};")
        for axis in range(3 - window.rank, 3) if window.adaptive else ():
            name, size, out = AXES[axis], window.size[axis], window.out[axis]
            wide = "(long)" if (size + 1) * out >= 2**31 else ""
            last = f"({wide}({name} + 1) * {stride(size)} + {shift(out - 1)}) / {out}"
            self.put(f"const int {name}_first = {times(f'{wide}{name}', size)} / {out}, {name}_end = {last};")
        if window.rank > 1:
            self.put(f"float best[{strip}];" if strip > 1 else f"float best = {start};")
        if strip > 1:
            self.put(f"for (int o = 0; o < {strip}; ++o) best[o] = {start};")
        opened = self.axis(0) if window.rank > 2 else 0
        opened += self.axis(1, strip) if window.rank > 1 else 0
        row = "across" if window.rank > 1 else "best"
        self.put(f"float {row} = {start};")
        if window.rank == 1 and self.functions is CUDA and self.tests(2):  # almost all windows are inside their line and need no bounds checks
            self.put(f"const int begin = {self.begin(2)};")
            self.open(f"if (begin >= 0 && begin <= {end(window.size[2] - window.reach(2), 'begin')})")
            self.walk(row, guarded=False)
            self.depth -= 1
            self.open("} else")
            self.walk(row)
            self.close()
        else:
            self.walk(row)
        if window.rank == 1:
            pass  # the whole window is one row
        elif strip == 1:
            self.join("best", "across")
        else:
            self.put("#pragma unroll")
            self.open(f"for (int o = 0; o < {strip}; ++o)")
            step = window.stride[1]
            self.put(f"const int below = h_k - {times('o', step)};" if step > 1 else "const int below = h_k - o;")
            dilated = f" && below % {window.dilation[1]} == 0" if window.dilation[1] > 1 else ""
            self.open(f"if (below >= 0 && {below('below', window.reach(1))}{dilated})")
            self.join("best[o]", "across")
            self.close()
            self.close()
        for _ in range(opened):
            self.close()
        self.finish()
        return self.found

    def walk(self, row: str, guarded: bool = True) -> None:
        """Prints the loop along the width."""
        across = self.axis(2, guarded=guarded)
        self.load()
        self.join(row, "v")
        for _ in range(across):
            self.close()

    def begin(self, axis: int) -> str:
        """Returns the start of the window."""
        window, name = self.window, AXES[axis]
        scaled = times(name, window.stride[axis]) if window.stride[axis] > 1 else name
        return scaled + (f" - {window.padding[axis]}" if window.padding[axis] else "")

    def tests(self, axis: int, strip: int = 1) -> list[str]:
        """Returns the conditions that are true if an element of the window is inside the image."""
        window, name = self.window, AXES[axis]
        if window.adaptive:
            return []
        furthest = (-(-window.out[axis] // strip) * strip - 1) * window.stride[axis] - window.padding[axis] + window.reach(axis)
        before, behind = bool(window.padding[axis]), furthest > window.size[axis]
        return [f"{name}_at >= 0"] * before + [below(f"{name}_at", window.size[axis])] * behind

    def axis(self, axis: int, strip: int = 1, guarded: bool = True) -> int:
        """Opens the loop over the window along `axis`, and returns the number of braces that it opened."""
        window, name = self.window, AXES[axis]
        if window.adaptive:
            self.open(f"for (int {name}_at = {name}_first; {name}_at < {name}_end; ++{name}_at)")
            return 1
        dilation = window.dilation[axis]
        steps = window.kernel[axis] if strip == 1 else (strip - 1) * window.stride[axis] + window.reach(axis)
        total = product(window.kernel[axis:])
        if total <= UNROLLED:
            self.put("#pragma unroll")
        self.open(f"for (int {name}_k = 0; {name}_k < {steps}; ++{name}_k)")
        along = times(f"{name}_k", dilation) if dilation > 1 and strip == 1 else f"{name}_k"
        self.put(f"const int {name}_at = {self.begin(axis)} + {along};")
        tests = self.tests(axis, strip) if guarded else []
        if tests:
            self.open(f"if ({' && '.join(tests)})")
        return 1 + bool(tests)

    def load(self) -> None:
        window = self.window
        at = [f"{AXES[axis]}_at" for axis in range(3 - window.rank, 3)]
        if self.prologue is not None:
            for line in self.prologue.statements(self.functions, ["plane", *at], "v"):
                self.put(line)
            return
        where: list[str] = []
        step = 1
        for axis in range(2, 2 - window.rank, -1):
            where.insert(0, times(f"{AXES[axis]}_at", step) if step > 1 else f"{AXES[axis]}_at")
            step *= window.size[axis]
        wide = "(long)" if product(window.size) >= 2**31 else ""
        element = f"image[{wide}{' + '.join(where)}]"
        self.put(f"const float v = {widened(element, self.stored)};")

    def join(self, into: str, value: str) -> None:
        if self.window.mean:
            self.put(f"{into} += {value};")
        else:
            self.put(f"{into} = {value} > {into} || {value} != {value} ? {value} : {into};")

    def finish(self) -> None:
        """For means, divides the sum; then computes and stores everything that depends on the result."""
        window, strip = self.window, self.strip
        if strip > 1:
            self.put("#pragma unroll")
            self.open(f"for (int o = 0; o < {strip}; ++o)")
            if window.out[1] % strip:
                self.put(f"if ({beyond('h + o', window.out[1])}) break;")
        best = "best[o]" if strip > 1 else "best"
        row = "(h + o)" if strip > 1 else "h"
        if window.mean:
            divisor = self.divisor(row)
            if divisor.startswith("const"):
                self.put(divisor)
                divisor = "counted"
            self.put(f"const float mean = {best} / {divisor};")
            best = "mean"
        names = {"d": "d", "h": row, "w": "w"}
        texts = ["plane", *(names[AXES[axis]] for axis in range(3 - window.rank, 3))]
        for line in self.work.tail.statements(self.functions, texts, best):
            self.put(line)
        if strip > 1:
            self.close()

    def divisor(self, row: str) -> str:
        """Returns the divisor as a literal, or a declaration of the `counted` variable."""
        window = self.window
        if window.divisor:
            return f"{window.divisor}.0f"
        axes = range(3 - window.rank, 3)
        if window.adaptive:
            return f"const float counted = {' * '.join(f'(float)({AXES[a]}_end - {AXES[a]}_first)' for a in axes)};"
        terms = []
        for axis in axes:
            kernel, step, padding, size = window.kernel[axis], window.stride[axis], window.padding[axis], window.size[axis]
            pads = padding if window.counts_padding else 0
            last = (window.out[axis] - 1) * step - padding + kernel
            if (window.counts_padding or padding == 0) and last <= size + pads:
                terms.append(str(kernel))
                continue
            name = row if axis == 1 else AXES[axis]
            first = times(name, step) + (f" - {padding}" if padding else "")
            first = first if window.counts_padding or padding == 0 else f"({first} > 0 ? {first} : 0)"
            until = f"{times(name, step)} + {shift(kernel - padding)}"
            terms.append(f"(({below(until, size + pads)} ? {until} : {end(size + pads)}) - ({first}))")
        if all(term.isdigit() for term in terms):
            return f"{product(int(term) for term in terms)}.0f"
        return f"const float counted = (float)({' * '.join(terms)});"


def strip_of(work: Work) -> int:
    window: Window = work.detail
    if window.adaptive or window.out[1] == 1:
        return 1
    overlaps = window.reach(1) > window.stride[1]
    return work.knob("strip", 4 if overlaps and product(window.kernel[1:]) <= 25 else 1)


def read_window(node: Node, shape: tuple[int, ...], kind: str, rank: int) -> Window:
    args = [plain(a) for a in node.args[1:]]
    out = node.outputs[0].shape
    size = three(shape[-rank:], rank)
    common: dict[str, Any] = {"rank": rank, "planes": product(shape[:-rank]), "size": size, "out": three(out[-rank:], rank)}
    if kind == "adaptive_avg":
        kernel = tuple(-(-a // b) + (a % b > 0) for a, b in zip(size, common["out"], strict=True))
        return Window(mean=True, adaptive=True, kernel=kernel, stride=kernel, padding=(0, 0, 0), dilation=(1, 1, 1), **common)
    args += [None] * 6
    kernel = three(args[0], rank)
    stride = three(args[1], rank) if args[1] else kernel
    padding = three(args[2] or 0, rank, 0)
    if kind == "max":
        return Window(mean=False, adaptive=False, kernel=kernel, stride=stride, padding=padding, dilation=three(args[3] or 1, rank), **common)
    return Window(
        mean=True, adaptive=False, kernel=kernel, stride=stride, padding=padding, dilation=(1, 1, 1),
        counts_padding=args[4] is not False, divisor=args[5], **common,
    )  # fmt: skip


def three(value: Any, rank: int, fill: int = 1) -> tuple[int, int, int]:
    values = [value] * rank if isinstance(value, int) else list(value) * (rank if len(value) == 1 else 1)
    return tuple([fill] * (3 - rank) + values)


def describe(window: Window) -> str:
    over = "x".join(map(str, window.kernel[3 - window.rank :]))
    if window.adaptive:
        return f"windows of about {over}"
    step, pad, dilation = (values[3 - window.rank :] for values in (window.stride, window.padding, window.dilation))
    parts = [f"windows of {over} by steps of {'x'.join(map(str, step))}"]
    parts += [f"padded by {'x'.join(map(str, pad))}"] if any(pad) else []
    parts += [f"dilated by {'x'.join(map(str, dilation))}"] if product(dilation) > 1 else []
    return ", ".join(parts)


def parameters(arguments: list[Argument], restrict: str) -> str:
    return ", ".join(f"{'' if a.written else 'const '}{POINTED[a.dtype]}* {restrict} {a.name}" for a in arguments)


def one_kernel(lines: list[str], arguments: list[Argument], grid: int, threads: int) -> list[Part]:
    """Returns a kernel with the body `lines`, and its launcher."""
    taken = parameters(arguments, "__restrict__")
    kernel = KernelText.of(NAME, "kernel", f"__launch_bounds__({threads}) ", taken, indented(lines))
    return [kernel, launcher(taken, [Launch(kernel.name, str(grid), threads, ", ".join(a.name for a in arguments))])]


def launcher(taken: str, statements: Sequence[str | Launch]) -> Launcher:
    return Launcher(NAME, f"{taken}, void* stream", tuple(statements))
