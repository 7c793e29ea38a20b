"""Prints a kernel (`ir.Kernel`) as CUDA C++: one `__global__` function, and a launcher with a plain C ABI that takes pointers and a stream.

Shapes of launch, chosen by `schedule`:

- *elements*: no reduction; a grid-stride loop, four elements a thread where memory allows 16-byte access;
- *threads*: a thread a row, for very short rows and for rows that lie across memory;
- *warps*: a warp a row, the row in registers;
- *blocks*: a block a row, or a cluster of blocks (distributed shared memory, compute capability 9.0) for long rows and few of them; the row stays
  in registers between its reductions where it fits, else it is read again;
- *scan*: a block a row that walks the row in chunks with a running carry.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from agents.compiler.cuda_preamble import C_TYPES, identity, scalar
from agents.compiler.figures import DeviceFigures
from agents.compiler.ir import Access, Kernel, Op, product
from agents.compiler.options import Options

MAX_REGISTER_VALUES = 64  # cached values a thread, before the compiler would spill
KEYWORDS = frozenset(
    "and or not xor int float double long short char bool const static for while if else do return new delete this max min abs".split()
)


@dataclass
class Schedule:
    shape: str  # "elements", "threads", "warps", "blocks", "scan"
    threads: int  # a block
    blocks: int
    vector: int  # elements that a thread reads at once
    rounds: int = 1  # chunks of a row that a thread handles
    cluster: int = 1
    cached: bool = False  # values needed again stay in registers

    @property
    def lanes(self) -> int:
        """Threads that share a row."""
        return {"threads": 1, "warps": 32}.get(self.shape, self.threads * self.cluster)


def schedule(kernel: Kernel, options: Options, group: str, figures: DeviceFigures) -> Schedule:
    rows, length = kernel.rows, kernel.length
    vector = _vector(kernel) if options.on("vectorise", group) else 1
    vector = min(vector, options.knob("vector", group, 4))
    if not kernel.reduces:
        threads = options.knob("threads", group, 256)
        chunks = -(-rows * length // vector)
        return Schedule("elements", threads, max(1, min(-(-chunks // threads), figures.units * 16)), vector)
    if kernel.scans:
        threads = options.knob("threads", group, min(1024, max(32, _up(-(-length // vector), 32))))
        return Schedule("scan", threads, rows, vector, -(-length // (threads * vector)))
    if length <= 16 or _across(kernel):
        threads = options.knob("threads", group, 128 if rows < figures.units * 256 else 256)
        return Schedule("threads", threads, -(-rows // threads), 1, length)
    if length <= 1024 and rows >= 64:
        rounds = -(-length // (32 * vector))
        return Schedule("warps", 256, -(-rows // 8), vector, rounds, cached=True)
    threads = options.knob("threads", group, min(1024, max(128, _up(-(-length // 16), 32))))
    cluster = 1
    while cluster < 8 and (
        (options.on("row-cache", group) and length > threads * cluster * 32) or (rows * cluster < figures.units and length >= 4096 * cluster)
    ):
        cluster *= 2
    cluster = options.knob("cluster", group, cluster)
    rounds = -(-length // (threads * cluster * vector))
    return Schedule("blocks", threads, rows * cluster, vector, rounds, cluster, cached=options.on("row-cache", group) and rounds * vector <= 32)


def _up(value: int, step: int) -> int:
    return -(-value // step) * step


def _vector(kernel: Kernel) -> int:
    """4 where every full-size access walks the innermost axis with stride 1 or 0 and every chunk of four starts on a multiple of four."""
    if not kernel.inner:
        return 1
    last = kernel.inner[-1]
    if kernel.sizes[last] % 4:
        return 1
    unit = False
    for access in kernel.accesses():
        step = access.strides[last]
        if access.index or step not in (0, 1):
            continue  # gathers and strided reads stay scalar
        if step == 1:
            unit = True
            if access.offset % 4 or any(stride % 4 for axis, stride in enumerate(access.strides) if axis != last and kernel.sizes[axis] > 1):
                return 1
    return 4 if unit else 1


def _across(kernel: Kernel) -> bool:
    """Whether neighbouring rows, not neighbouring elements of a row, lie side by side in memory."""
    if not kernel.outer or not kernel.inner:
        return False
    inner, outer = kernel.inner[-1], kernel.outer[-1]
    full = [
        access
        for access in kernel.accesses()
        if any(access.strides[axis] for axis in kernel.inner) and any(access.strides[axis] for axis in kernel.outer)
    ]
    return bool(full) and all(access.strides[inner] != 1 and access.strides[outer] == 1 for access in full)


@dataclass
class _Pass:
    """One walk over the row: what it computes element by element, what it reduces, what it stores."""

    ops: list[Op] = field(default_factory=list)
    reduces: list[Op] = field(default_factory=list)
    stores: list = field(default_factory=list)
    keeps: list[str] = field(default_factory=list)  # values that a later pass reads from registers


class CudaPrinter:
    """Source of one kernel; `source()` is the whole of it, `launcher` the C function to call."""

    def __init__(self, kernel: Kernel, options: Options, group: str, figures: DeviceFigures):
        self.kernel, self.plan = kernel, schedule(kernel, options, group, figures)
        self.launcher = kernel.name
        self.wide = max((argument.elements for argument in kernel.arguments.values()), default=0) >= 2**31 or kernel.rows * kernel.length >= 2**31
        self.integer = "long long" if self.wide else "int"
        self.names = {name: self._name(name) for name in kernel.ops}
        self.lines: list[str] = []

    def _name(self, name: str) -> str:
        return f"{name}_" if name in KEYWORDS or name in self.kernel.arguments or name in ("row", "at", "lane", "it", "v", "element") else name

    # -- passes -------------------------------------------------------------------------------------------------------------

    def passes(self) -> list[_Pass]:
        """Reductions that need no earlier one of their own pass share a pass; each op runs in the first pass that needs it."""
        ops = self.kernel.ops
        stage: dict[str, int] = {}
        for op in ops.values():
            known = max((stage[a] for a in self._sources(op)), default=0)
            stage[op.name] = known + 1 if op.kind == "reduce" else known
        last = max(stage.values(), default=0)
        found = []
        cached: set[str] = set()
        for at in range(last + 1):
            reduces = [op for op in ops.values() if op.kind == "reduce" and stage[op.name] == at + 1]
            stores = [s for s in self.kernel.stores if s.level == "full" and (stage[s.op] == at if self.plan.cached else at == last)]
            wanted = self._closure(
                [op.args[0] for op in reduces] + [s.op for s in stores] + [s.access.index for s in stores if s.access.index], cached
            )
            found.append(_Pass([op for op in ops.values() if op.name in wanted], reduces, stores))
            if self.plan.cached:
                later = [op for op in ops.values() if stage[op.name] - (op.kind == "reduce") > at]
                late_stores = [s.op for s in self.kernel.stores if s.level == "full" and stage[s.op] > at]
                used = {a for op in later for a in self._sources(op)} | set(late_stores)
                room = MAX_REGISTER_VALUES // max(1, self.plan.rounds * self.plan.vector)
                keeps = [o.name for o in found[-1].ops if o.name in used and o.kind not in ("const", "coord") and self._worth(o)]
                found[-1].keeps = [name for name in keeps if name not in cached][:room]
                cached |= set(found[-1].keeps)
        return [p for p in found if p.reduces or p.stores]

    @staticmethod
    def _worth(op: Op) -> bool:
        return op.kind in ("load", "gather", "exp", "tanh", "erf", "log", "pow", "sigmoid", "sub", "mul", "add", "div", "where", "cast")

    @staticmethod
    def _sources(op: Op) -> list[str]:
        return [*op.args, *([op.access.index] if op.access and op.access.index else [])]

    def _closure(self, names: list[str], cached: set[str]) -> set[str]:
        """Full-level operations that `names` need, stopping at row values and at what registers hold."""
        found, left = set(), list(names)
        while left:
            op = self.kernel.ops[left.pop()]
            if op.level != "full" or op.name in found or op.name in cached or op.kind == "reduce":
                continue
            found.add(op.name)
            left += self._sources(op)
        return found

    # -- expressions --------------------------------------------------------------------------------------------------------

    def ref(self, name: str, cached: set[str]) -> str:
        """Value of an operation at element `v` of the chunk, or of the row."""
        op = self.kernel.ops[name]
        if op.kind == "const":
            return scalar("const", [], op.dtype, op.attr, "")
        if op.level == "full" and name in cached:
            return f"{self.names[name]}[it][v]" if self.plan.rounds > 1 else f"{self.names[name]}[v]"
        if op.level == "full" and op.kind == "load" and self._vector_load(op):
            return f"{self.names[name]}[v]"
        return self.names[name]

    def _vector_load(self, op: Op) -> bool:
        return self.plan.vector > 1 and op.access is not None and not op.access.index and op.access.strides[self.kernel.inner[-1]] == 1

    def expression(self, op: Op, cached: set[str]) -> str:
        return scalar(op.kind, [self.ref(a, cached) for a in op.args], op.dtype, op.attr, self.kernel.ops[op.args[0]].dtype if op.args else "")

    def address(self, access: Access, axes: list[int], with_vector: bool, cached: set[str]) -> str:
        """Index into the argument from the coordinates `c<axis>` of `axes`."""
        last = self.kernel.inner[-1] if self.kernel.inner else -1
        terms = []
        for axis in axes:
            stride = access.strides[axis]
            if stride and self.kernel.sizes[axis] > 1:
                at = f"(c{axis} + v)" if with_vector and axis == last and self.plan.vector > 1 else f"c{axis}"
                terms.append(at if stride == 1 else f"{at} * {stride}")
        if access.offset:
            terms.append(str(access.offset))
        return " + ".join(terms) or "0"

    def load(self, op: Op, cached: set[str]) -> str:
        axes = list(range(len(self.kernel.sizes))) if op.level == "full" else self.kernel.outer
        address = self.address(op.access, axes, op.level == "full", cached)
        if op.access.index:
            index = self._chunk_ref(op.access.index) if self.plan.shape == "scan" else self.ref(op.access.index, cached)
            return f"st_gather({op.access.argument} + {address}, {index}, {op.access.limit}, {op.access.index_stride})"
        return f"{op.access.argument}[{address}]"

    # -- printing -----------------------------------------------------------------------------------------------------------

    def out(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text if text else "")

    def coordinates(self, depth: int, axes: list[int], of: str) -> None:
        """Declare `c<axis>` for `axes` from the linear index `of`."""
        axes = [axis for axis in axes if self.kernel.sizes[axis] > 1 or self._used_coord(axis)]
        rest = of
        for position, axis in enumerate(reversed(axes)):
            if position == len(axes) - 1:
                self.out(depth, f"const {self.integer} c{axis} = {rest};")
            else:
                size = self.kernel.sizes[axis]
                self.out(depth, f"const {self.integer} c{axis} = {_wrap(rest)} % {size};")
                rest = f"{_wrap(rest)} / {size}"

    def _used_coord(self, axis: int) -> bool:
        return any(op.kind == "coord" and op.attr == axis for op in self.kernel.ops.values())

    def source(self) -> str:
        kernel, plan = self.kernel, self.plan
        self.lines = []
        self._comment()
        cluster = f"__cluster_dims__({plan.cluster}, 1, 1) " if plan.cluster > 1 else ""
        self.out(0, f"__global__ void {cluster}__launch_bounds__({plan.threads}) {self.launcher}_kernel({self._parameters()}) {{")
        {"elements": self._elements, "threads": self._thread_rows, "warps": self._shared_rows, "blocks": self._shared_rows, "scan": self._scan}[
            plan.shape
        ]()
        self.out(0, "}")
        self.out(0, "")
        names = ", ".join(kernel.arguments)
        self.out(0, f'extern "C" int {self.launcher}({self._parameters()}, cudaStream_t stream) {{')
        self.out(1, f"{self.launcher}_kernel<<<{plan.blocks}, {plan.threads}, 0, stream>>>({names});")
        self.out(1, "return cudaGetLastError();")
        self.out(0, "}")
        return "\n".join(self.lines)

    def _parameters(self) -> str:
        return ", ".join(
            f"{'' if argument.written else 'const '}{C_TYPES[argument.dtype]}* {'' if argument.read and argument.written else '__restrict__ '}{argument.name}"
            for argument in self.kernel.arguments.values()
        )

    def _comment(self) -> None:
        kernel, plan = self.kernel, self.plan
        sizes = {"float32": 4, "int64": 8, "int32": 4, "int16": 2}
        read = sum(a.elements * sizes.get(a.dtype, 1) for a in kernel.arguments.values() if a.read)
        written = sum(a.elements * sizes.get(a.dtype, 1) for a in kernel.arguments.values() if a.written)
        passes = len(self.passes()) if plan.shape in ("warps", "blocks") and not plan.cached else 1
        shape = {
            "elements": f"{plan.blocks} blocks of {plan.threads} threads over {kernel.rows * kernel.length} elements",
            "threads": f"a thread a row, {kernel.rows} rows of {kernel.length}",
            "warps": f"a warp a row, {kernel.rows} rows of {kernel.length}",
            "blocks": f"{'a block' if plan.cluster == 1 else f'a cluster of {plan.cluster} blocks'} of {plan.threads} threads a row, {kernel.rows} rows of {kernel.length}",
            "scan": f"a block of {plan.threads} threads a row, {kernel.rows} rows of {kernel.length}",
        }[plan.shape]
        again = "" if passes == 1 else f", the row {passes} times"
        self.out(0, f"// {kernel.title or kernel.name}")
        self.out(0, f"// Launch: {shape}. Traffic: reads {_amount(read)}{again}, writes {_amount(written)}.")

    def _row_values(self, depth: int, done: set[str], available: set[str]) -> None:
        """Row-level operations that can be computed by now."""
        for op in self.kernel.ops.values():
            if op.level != "row" or op.name in done or op.kind in ("reduce", "const"):
                continue
            if any(self.kernel.ops[a].kind != "const" and a not in done for a in self._sources(op)):
                continue
            text = (
                self.load(op, available)
                if op.kind in ("load", "gather")
                else self._coord(op)
                if op.kind == "coord"
                else self.expression(op, available)
            )
            self.out(depth, f"const {C_TYPES[op.dtype]} {self.names[op.name]} = {text};")
            done.add(op.name)

    def _coord(self, op: Op) -> str:
        vector = self.plan.vector > 1 and self.kernel.inner and op.attr == self.kernel.inner[-1]
        return f"(long long)(c{op.attr} + v)" if vector else f"(long long)c{op.attr}"

    def _loads(self, depth: int, walk: _Pass, cached: set[str]) -> None:
        """Vector loads of a chunk, into registers that outlive the pass where they are kept."""
        for op in walk.ops:
            if op.kind == "load" and self._vector_load(op):
                address = self.address(op.access, list(range(len(self.kernel.sizes))), False, cached)
                if op.name in walk.keeps:
                    target = f"{self.names[op.name]}[it]" if self.plan.rounds > 1 else self.names[op.name]
                else:
                    self.out(depth, f"{C_TYPES[op.dtype]} {self.names[op.name]}[{self.plan.vector}];")
                    target = self.names[op.name]
                self.out(depth, f"st_load{self.plan.vector}({target}, {op.access.argument} + {address});")

    def _element(self, depth: int, walk: _Pass, cached: set[str]) -> None:
        """The scalar operations at one element, reductions and stores included."""
        vector_stores = []
        for op in walk.ops:
            kept = op.name in walk.keeps
            if op.kind == "const" or (op.kind == "load" and self._vector_load(op)):
                continue
            text = self.load(op, cached) if op.kind in ("load", "gather") else self._coord(op) if op.kind == "coord" else self.expression(op, cached)
            if kept:
                self.out(depth, f"{self.ref(op.name, cached | {op.name})} = {text};")
            else:
                self.out(depth, f"const {C_TYPES[op.dtype]} {self.names[op.name]} = {text};")
        for op in walk.reduces:
            total = f"{self.names[op.name]}_part"
            self.out(depth, f"{total} = {_COMBINE[op.attr]}<{C_TYPES[op.dtype]}>::of({total}, {self.ref(op.args[0], cached)});")
        for store in walk.stores:
            if self._vector_store(store):
                vector_stores.append(store)
                self.out(depth, f"{store.access.argument}_chunk[v] = {self.ref(store.op, cached)};")
            else:
                axes = list(range(len(self.kernel.sizes)))
                self.out(depth, f"{store.access.argument}[{self.address(store.access, axes, True, cached)}] = {self.ref(store.op, cached)};")

    def _vector_store(self, store) -> bool:
        return self.plan.vector > 1 and store.level == "full" and store.access.strides[self.kernel.inner[-1]] == 1 and not store.access.index

    def _chunk(self, depth: int, walk: _Pass, cached: set[str]) -> None:
        """Everything that a pass does with the chunk whose coordinates are declared."""
        visible = cached | set(walk.keeps)
        self._loads(depth, walk, visible)
        stores = [s for s in walk.stores if self._vector_store(s)]
        for store in stores:
            self.out(depth, f"{C_TYPES[self.kernel.arguments[store.access.argument].dtype]} {store.access.argument}_chunk[{self.plan.vector}];")
        if self.plan.vector > 1:
            self.out(depth, "#pragma unroll")
            self.out(depth, f"for (int v = 0; v < {self.plan.vector}; ++v) {{")
            self._element(depth + 1, walk, visible)
            self.out(depth, "}")
        else:
            if walk.keeps or cached:
                self.out(depth, "constexpr int v = 0;")
            self._element(depth, walk, visible)
        for store in stores:
            axes = list(range(len(self.kernel.sizes)))
            address = self.address(store.access, axes, False, visible)
            self.out(depth, f"st_store{self.plan.vector}({store.access.argument} + {address}, {store.access.argument}_chunk);")

    # -- shapes of launch ---------------------------------------------------------------------------------------------------

    def _elements(self) -> None:
        total = self.kernel.rows * self.kernel.length
        step = self.plan.vector
        done: set[str] = set()
        walk = _Pass(ops=[op for op in self.kernel.ops.values() if op.level == "full"], stores=list(self.kernel.stores))
        start = f"(({self.integer})blockIdx.x * {self.plan.threads} + threadIdx.x){f' * {step}' if step > 1 else ''}"
        stride = f"({self.integer})gridDim.x * {self.plan.threads * step}"
        self.out(1, f"for ({self.integer} element = {start}; element < {total}; element += {stride}) {{")
        self.coordinates(2, [*self.kernel.outer, *self.kernel.inner], "element")
        self._row_values(2, done, set())
        self._chunk(2, walk, set())
        self.out(1, "}")

    def _thread_rows(self) -> None:
        kernel = self.kernel
        self.out(1, f"const {self.integer} row = ({self.integer})blockIdx.x * {self.plan.threads} + threadIdx.x;")
        self.out(1, f"if (row >= {kernel.rows}) return;")
        self.coordinates(1, kernel.outer, "row")
        done: set[str] = set()
        self._row_values(1, done, set())
        for walk in self.passes():
            self._declare_parts(walk)
            self.out(1, f"for ({self.integer} element = 0; element < {kernel.length}; ++element) {{")
            self.coordinates(2, kernel.inner, "element")
            self._chunk(2, walk, set())
            self.out(1, "}")
            for op in walk.reduces:
                self.out(1, f"const {C_TYPES[op.dtype]} {self.names[op.name]} = {self.names[op.name]}_part;")
                done.add(op.name)
            self._row_values(1, done, set())
        self._row_stores(1, "")

    def _declare_parts(self, walk: _Pass) -> None:
        for op in walk.reduces:
            self.out(1, f"{C_TYPES[op.dtype]} {self.names[op.name]}_part = {identity(op.attr, op.dtype)};")

    def _row_stores(self, depth: int, guard: str) -> None:
        stores = [store for store in self.kernel.stores if store.level == "row"]
        if not stores:
            return
        if guard:
            self.out(depth, f"if ({guard}) {{")
        for store in stores:
            address = self.address(store.access, self.kernel.outer, False, set())
            self.out(depth + bool(guard), f"{store.access.argument}[{address}] = {self.ref(store.op, set())};")
        if guard:
            self.out(depth, "}")

    def _shared_rows(self) -> None:
        kernel, plan = self.kernel, self.plan
        if plan.shape == "warps":
            self.out(1, f"const {self.integer} row = ({self.integer})blockIdx.x * {plan.threads // 32} + threadIdx.x / 32;")
            self.out(1, f"if (row >= {kernel.rows}) return;")
            self.out(1, "const int lane = threadIdx.x % 32;")
        elif plan.cluster > 1:
            self.out(1, f"const {self.integer} row = blockIdx.x / {plan.cluster};")
            self.out(1, f"const int lane = blockIdx.x % {plan.cluster} * {plan.threads} + threadIdx.x;")
        else:
            self.out(1, f"const {self.integer} row = blockIdx.x;")
            self.out(1, "const int lane = threadIdx.x;")
        self.coordinates(1, kernel.outer, "row")
        done: set[str] = set()
        self._row_values(1, done, set())
        cached: set[str] = set()
        walks = self.passes()
        for walk in walks:
            for name in walk.keeps:
                extent = f"[{plan.rounds}][{plan.vector}]" if plan.rounds > 1 else f"[{plan.vector}]"
                self.out(1, f"{C_TYPES[kernel.ops[name].dtype]} {self.names[name]}{extent};")
        for walk in walks:
            self._declare_parts(walk)
            self._row_loop(walk, cached)
            cached |= set(walk.keeps)
            for op in walk.reduces:
                how = f"{_COMBINE[op.attr]}<{C_TYPES[op.dtype]}>"
                call = {"warps": f"st_warp_reduce<{how}>"}.get(
                    plan.shape,
                    f"st_block_reduce<{how}, {plan.threads}>" if plan.cluster == 1 else f"st_cluster_reduce<{how}, {plan.threads}, {plan.cluster}>",
                )
                self.out(1, f"const {C_TYPES[op.dtype]} {self.names[op.name]} = {call}({self.names[op.name]}_part);")
                done.add(op.name)
            self._row_values(1, done, cached)
        self._row_stores(1, "lane == 0")

    def _row_loop(self, walk: _Pass, cached: set[str]) -> None:
        plan, length = self.plan, self.kernel.length
        step = plan.lanes * plan.vector
        lane = f"lane{f' * {plan.vector}' if plan.vector > 1 else ''}"
        depth = 1
        if plan.rounds > 1:
            self.out(1, "#pragma unroll" if plan.cached else "#pragma unroll 4")
            self.out(1, f"for (int it = 0; it < {plan.rounds}; ++it) {{")
            self.out(2, f"const {self.integer} element = ({self.integer})it * {step} + {lane};")
            depth = 2
        else:
            self.out(1, "{")
            self.out(2, f"const {self.integer} element = {lane};")
            depth = 2
        guarded = plan.rounds * step != length
        if guarded:
            self.out(depth, f"if (element < {length}) {{")
        self.coordinates(depth + guarded, self.kernel.inner, "element")
        self._chunk(depth + guarded, walk, cached)
        if guarded:
            self.out(depth, "}")
        self.out(1, "}")

    def _scan(self) -> None:
        kernel, plan = self.kernel, self.plan
        scans = [op for op in kernel.ops.values() if op.kind == "scan"]
        self.out(1, f"const {self.integer} row = blockIdx.x;")
        self.coordinates(1, kernel.outer, "row")
        self._row_values(1, set(), set())
        for op in scans:
            self.out(1, f"{C_TYPES[op.dtype]} {self.names[op.name]}_carry = 0;")
        chunk = plan.threads * plan.vector
        self.out(1, f"for ({self.integer} start = 0; start < {kernel.length}; start += {chunk}) {{")
        self.out(2, f"const {self.integer} element = start + threadIdx.x{f' * {plan.vector}' if plan.vector > 1 else ''};")
        self.out(2, f"const bool inside = element < {kernel.length};")
        self.coordinates(2, kernel.inner, "element")
        full = [op for op in kernel.ops.values() if op.level == "full" and op.kind != "const"]
        self._declare_chunk(full)
        pending: list[Op] = []
        for op in full:
            if op.kind != "scan":
                pending.append(op)
                continue
            self._scan_run(pending)
            pending = []
            name, source = self.names[op.name], self._chunk_ref(op.args[0])
            self.out(
                2,
                f"for (int v = 0; v < {plan.vector}; ++v) {name}[v] = ({'v ? ' + name + '[v - 1] : 0) + ' if plan.vector > 1 else '0) + '}{source};",
            )
            self.out(2, f"st_block_scan<{C_TYPES[op.dtype]}, {plan.threads}, {plan.vector}>({name}, {name}_carry);")
        self._scan_run(pending)
        self.out(2, "if (inside) {")
        self.out(3, f"for (int v = 0; v < {plan.vector}; ++v) {{")
        for store in kernel.stores:
            address = self.address(store.access, list(range(len(kernel.sizes))), True, set())
            self.out(4, f"{store.access.argument}[{address}] = {self._chunk_ref(store.op)};")
        self.out(3, "}")
        self.out(2, "}")
        self.out(1, "}")

    def _declare_chunk(self, full: list[Op]) -> None:
        for op in full:
            self.out(2, f"{C_TYPES[op.dtype]} {self.names[op.name]}[{self.plan.vector}] = {{}};")

    def _chunk_ref(self, name: str) -> str:
        op = self.kernel.ops[name]
        return f"{self.names[name]}[v]" if op.level == "full" and op.kind != "const" else self.ref(name, set())

    def _scan_run(self, ops: list[Op]) -> None:
        """Pointwise operations between two scans, over the chunk in registers."""
        if not ops:
            return
        self.out(2, "if (inside) {")
        vector = [op for op in ops if op.kind == "load" and self._vector_load(op)]
        for op in vector:
            address = self.address(op.access, list(range(len(self.kernel.sizes))), False, set())
            self.out(3, f"st_load{self.plan.vector}({self.names[op.name]}, {op.access.argument} + {address});")
        rest = [op for op in ops if op not in vector]
        if rest:
            self.out(3, "#pragma unroll")
            self.out(3, f"for (int v = 0; v < {self.plan.vector}; ++v) {{")
            for op in rest:
                if op.kind in ("load", "gather"):
                    text = self.load(op, set())
                elif op.kind == "coord":
                    text = self._coord(op)
                else:
                    text = scalar(
                        op.kind, [self._chunk_ref(a) for a in op.args], op.dtype, op.attr, self.kernel.ops[op.args[0]].dtype if op.args else ""
                    )
                self.out(4, f"{self.names[op.name]}[v] = {text};")
            self.out(3, "}")
        self.out(2, "}")


_COMBINE = {"sum": "StSum", "max": "StMax", "amax": "StMax", "min": "StMin", "amin": "StMin", "prod": "StProd"}


def _wrap(text: str) -> str:
    return f"({text})" if " " in text else text


def _amount(count: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B"


__all__ = ["CudaPrinter", "Schedule", "schedule", "product"]
