"""The source text of the recurrent kernel; recurrent.py explains how it works."""

from __future__ import annotations

import re

from compiler.families.family import NAME, Printed, Work
from compiler.families.pool import parameters
from compiler.families.recurrent.recurrent_shape import SPAN, Cells, Recurrence, Strided
from compiler.families.recurrent.recurrent_text import shared
from compiler.families.text import indented
from compiler.graph.ir import Argument
from compiler.graph.network import count
from compiler.kernel.expressions import POINTED
from compiler.kernel.functions import CUDA

RESERVED = (
    "x", "h0", "c0", "weights", "memory", "inputs", "before", "warp", "lane", "chain", "first_unit", "first_b", "cell", "unit", "b",
    "owner", "stage", "layer", "direction", "row", "bias", "state", "below", "own", "ahead", "step", "t", "sum", "value", "hidden",
    "feature", "at", "exchange", "scratch", "last_hidden", "last_cell", "input_weights", "hidden_weights", "k", "i", "reset",
    "update", "fresh", "read_ahead", "place", "four", "missing",
)  # fmt: skip


def printed(work: Work, recurrence: Recurrence, results: dict[int, str], cells: Cells) -> Printed:
    return RecurrentKernel(work, recurrence, results, cells).printed()


class RecurrentKernel:
    def __init__(self, work: Work, recurrence: Recurrence, results: dict[int, str], cells: Cells):
        self.work, self.found, self.cells = work, recurrence, cells
        self.shown = next(index for index, value in results.items() if value == work.match.value)  # the tail's input
        network = work.network
        named = list(zip(("x", "h0", "c0"), recurrence.names, strict=False))
        rows = [(f"{name}_{at}", value) for at, row in enumerate(recurrence.weights)
                for name, value in zip(("input_weight", "hidden_weight", "input_bias", "hidden_bias"), row, strict=False)]  # fmt: skip
        arguments = work.arguments(*named, *rows)
        self.weights = arguments[len(named) : len(named) + len(rows)]
        own = [(index, name) for index, name in ((1, "last_hidden"), (2, "last_cell")) if index in results and index != self.shown]
        self.extra = [Argument(name, results[i], recurrence.dtype, count(network.spec(results[i])), written=True) for i, name in own]
        self.arguments = [*arguments, *self.extra]
        self.passed = [argument for argument in self.arguments if argument not in self.weights]  # excludes the weights, which are in a struct

    @property
    def sets(self) -> int:
        return self.found.layers * self.found.directions

    def printed(self) -> Printed:
        found, cells = self.found, self.cells
        source = "\n".join([*self.weights_type(), *self.kernel(), *self.launcher(), ""])
        layers = f"{cells.layers} layers at once" if cells.layers > 1 else "one layer after the other" if found.layers > 1 else "one layer"
        comment = [
            f"{found.steps} steps of {found.batch} sequences, {found.inputs} inputs, {found.layers} layers of {found.hidden} units"
            + (" in both directions" if found.directions == 2 else "") + f"; {layers}: a chain of {cells.chain(found)} steps.",
            f"{cells.blocks(found)} blocks of {cells.threads} threads, all at once, {cells.units} units a block; weights stay in registers, hidden "
            f"states go through {found.exchange_bytes / 2**20:.1f} MiB of scratch memory.",
        ]  # fmt: skip
        return Printed([source], self.arguments, shared=shared(found.kind, found.dtype), scratch=found.exchange_bytes, comment=comment)

    def weights_type(self) -> list[str]:
        biases = [f"*input_bias[{self.sets}], *hidden_bias[{self.sets}]"] if len(self.found.weights[0]) == 4 else []
        fields = ", ".join([f"*input[{self.sets}], *hidden[{self.sets}]", *biases])
        which = "layer and direction" if self.found.directions == 2 else "layer"
        return [f"struct {NAME}_Weights {{", f"    const {POINTED[self.found.dtype]} {fields};  // of each {which}", "};", ""]

    # -- the kernel ----------------------------------------------------------------------------------------------------------

    def kernel(self) -> list[str]:
        found, cells = self.found, self.cells
        stages, chains = cells.stages(found), cells.layers * found.directions
        rows, part = cells.rows(found), cells.sequences(found)
        across = cells.blocks_a_chain(found)
        block = f"blockIdx.x % {across}" if chains > 1 else "blockIdx.x"
        warp = f"warp / {cells.parts}" if cells.parts > 1 else "warp"
        unit = f"{block} * {cells.units} + {warp}" + (f" * {cells.warp_units}" if cells.warp_units > 1 else "")
        count_of = cells.warp_units * part
        lines = [
            "extern __shared__ __align__(16) float memory[];",
            f"float* const inputs = memory;  // of this step, {found.batch} rows of {found.depth}",
            f"float* const before = memory + {rows * found.depth};  // the hidden state before it, {found.batch} rows of {found.hidden_depth}",
            "const int warp = threadIdx.x / 32;",
            f"const int chain = blockIdx.x / {across};" if chains > 1 else "",
            f"const int first_unit = {unit};",
            f"const int first_b = warp % {cells.parts} * {part};" if cells.parts > 1 else "",
            f"const int cell = cell_of_lane<{count_of}, 16>();",
            f"const int unit = first_unit + cell / {part};" if cells.warp_units > 1 else "const int unit = first_unit;",
            "const int b = " + ("first_b + " if cells.parts > 1 else "") + (f"cell % {part};" if cells.warp_units > 1 else "cell;"),
            "const bool owner = cell >= 0"
            + (f" && unit < {found.hidden}" if found.hidden % cells.units else "")
            + (f" && b < {found.batch}" if rows > found.batch else "")
            + ";",
        ]
        if rows > found.batch or found.hidden % SPAN or {found.inputs, found.width if found.layers > 1 else found.inputs} != {found.depth}:
            total = rows * (found.depth + found.hidden_depth)
            lines.append(f"for (int at = threadIdx.x; at < {total}; at += {cells.threads}) memory[at] = 0.0f;  // what lies outside stays 0")
            lines.append("__syncthreads();")
        inner = self.layer()
        if stages > 1:
            lines += [f"for (int stage = 0; stage < {stages}; ++stage) {{", *indented(inner), "}"]
        else:
            lines += inner
        taken = parameters(self.passed, "__restrict__")
        head = f"__global__ void __launch_bounds__({cells.threads}, 1) {NAME}_kernel({taken}, {NAME}_Weights weights, float* exchange) {{"
        return [head, *indented([line for line in lines if line]), "}", ""]

    def place(self) -> list[str]:
        """Declares `layer`, `direction` and `row` (the index of the weights)."""
        found, cells = self.found, self.cells
        stages = cells.stages(found)
        if found.directions == 2:
            layer = "stage" if stages > 1 else "0"
            return [f"const int layer = {layer}, direction = chain, row = {'layer * 2 + direction' if stages > 1 else 'direction'};"]
        layer = "chain" if cells.layers > 1 else "0"
        if stages > 1:
            layer = f"stage * {cells.layers} + chain" if cells.layers > 1 else "stage"
        lines = [f"const int layer = {layer}, row = layer;"]
        if stages * cells.layers > found.layers:
            lines.append(f"if (layer >= {found.layers}) break;")
        return lines

    def layer(self) -> list[str]:
        found, cells = self.found, self.cells
        gates, sums, part = found.gates, found.sums, cells.sequences(found)
        deep, hidden_deep = found.depth // 32, found.hidden_depth // 32
        first, later = found.matrices[0], found.matrices[-1]
        width = f"layer == 0 ? {found.inputs} : {found.width}" if found.layers > 1 and found.inputs != found.width else str(found.inputs)
        input_stride, hidden_stride = first[0].strides[0], first[1].strides[0]
        input_pitch = f"layer == 0 ? {input_stride} : {later[0].strides[0]}" if later[0].strides[0] != input_stride else str(input_stride)
        hidden_pitch = f"layer == 0 ? {hidden_stride} : {later[1].strides[0]}" if later[1].strides[0] != hidden_stride else str(hidden_stride)
        slab = found.steps * found.batch * found.width
        wide = "(long)" if found.layers * slab >= 2**31 else ""
        shift = f" + direction * {found.hidden}" if found.directions == 2 else ""
        ring = [f"float* const own = exchange + {wide}layer * {slab}{shift};" if found.layers > 1 else f"float* const own = exchange{shift};"]
        if found.layers > 1:
            ring.append(f"const float* const below = exchange + {wide}(layer - 1) * {slab};")
        now = "direction == 0 ? step : " + f"{found.steps - 1} - step" if found.directions == 2 else "step"
        following = f"direction == 0 ? step + 1 : {found.steps - 2} - step" if found.directions == 2 else "step + 1"
        lines = [
            *self.place(),
            f"float input_weights[{cells.warp_units}][{gates}][{deep}], hidden_weights[{cells.warp_units}][{gates}][{hidden_deep}];",
            f"read_weights(input_weights, weights.input[row], {input_pitch}, {width}, {found.hidden}, first_unit);",
            f"read_weights(hidden_weights, weights.hidden[row], {hidden_pitch}, {found.hidden}, {found.hidden}, first_unit);",
            *self.bias(),
            *self.first_states(),
            *ring,
            f"float4 ahead[{cells.ahead(found)}];",
            *self.read_ahead(),
            f"read_ahead({f'direction == 0 ? 0 : {found.steps - 1}' if found.directions == 2 else '0'});",
            f"for (int step = 0; step < {found.steps}; ++step) {{",
            f"    const int t = {now};",
            *indented(self.put_inputs()),
            "    __syncthreads();",
            f"    float sum[{cells.warp_units * part}][{sums}] = {{}};",
            f"    multiply<{part}, -1>(sum, input_weights, inputs{self.part_of(found.depth)});",
            "    settle(sum);",
            *indented(self.put_hidden()),
            "    __syncthreads();",
            f"    if (step + 1 < {found.steps}) read_ahead({following});",
            f"    multiply<{part}, {2 if found.kind == 'gru' else -1}>(sum, hidden_weights, before{self.part_of(found.hidden_depth)});",
            f"    add_lanes<{cells.warp_units * part}, 16>(sum);",
            "    if (owner) {",
            *indented(indented(self.cell())),
            "    }",
            "}",
        ]
        return lines

    def part_of(self, depth: int) -> str:
        return f" + first_b * {depth}" if self.cells.parts > 1 else ""

    def bias(self) -> list[str]:
        found = self.found
        lines = [f"float bias[{found.sums}] = {{}};"]
        if len(found.weights[0]) < 4:
            return lines
        lines.append("if (owner) {")
        for s in range(found.sums):
            at = f"{min(s, found.gates - 1) * found.hidden} + unit" if s else "unit"
            apart = found.kind == "gru"
            both = self.widened(f"weights.input_bias[row][{at}]") + " + " + self.widened(f"weights.hidden_bias[row][{at}]")
            one = self.widened(f"weights.{'input' if s == 2 else 'hidden'}_bias[row][{at}]")
            lines.append(f"    bias[{s}] = {one if apart and s >= 2 else both};")
        return [*lines, "}"]

    def widened(self, element: str) -> str:
        return element if self.found.dtype == "float32" else f"(float){element}"

    def first_states(self) -> list[str]:
        found = self.found
        lines = []
        wanted = {"lstm": [("state", "c0", found.states[-1])], "gru": [("state", "h0", found.states[0])]}.get(found.kind, [])
        for name, pointer, place in wanted:
            element = self.widened(f"{pointer}[{address(place, ('row', 'b', 'unit'))}]")
            lines.append(f"float {name} = owner ? {element} : 0.0f;")
        return lines

    def read_ahead(self) -> list[str]:
        """Returns the lambda that starts the reads of one step's inputs."""
        found = self.found
        own = f"four(x + {address(found.x, ('t', 'i', 'k'))})"
        source = f"layer == 0 ? {own} : read_fresh({self.below()})" if found.layers > 1 else own
        inside = self.inside()
        body = [f"if ({inside})", f"    ahead[at] = {source};"] if inside else [f"ahead[at] = {source};"]
        return ["const auto read_ahead = [&](int t) {", *indented(self.groups(found.depth, body)), "};"]

    def groups(self, depth: int, body: list[str]) -> list[str]:
        """Returns a loop that runs `body` for each of the thread's groups of four features `k` of sequence `i`. `place` is the flat index into rows
        of length `depth`."""
        found, threads = self.found, self.cells.threads
        total = found.batch * depth // 4
        return [
            "#pragma unroll",
            f"for (int at = 0; at < {-(-total // threads)}; ++at) {{",
            f"    const int place = (threadIdx.x + at * {threads}) * 4{self.parts_of_place(depth, body)};",
            *([f"    if (place >= {found.batch * depth}) break;"] if total % threads else []),
            *indented(body),
            "}",
        ]

    def parts_of_place(self, depth: int, body: list[str]) -> str:
        """Returns declarations of `i` and `k`, if they are used."""
        used = [name for name in ("i", "k") if re.search(rf"\b{name}\b", " ".join(body))]
        return "".join(f", {name} = place {'/' if name == 'i' else '%'} {depth}" for name in used)

    def inside(self) -> str:
        """Returns the condition for a depth index to belong to the layer, or "" if all indices do."""
        found = self.found
        if found.layers == 1:
            return f"k < {found.inputs}" if found.inputs < found.depth else ""
        if found.inputs == found.width:
            return f"k < {found.inputs}" if found.inputs < found.depth else ""
        return f"k < (layer == 0 ? {found.inputs} : {found.width})"

    def below(self) -> str:
        """Returns the address where the layer below writes the values that this thread reads for step `t`. No division is needed if rows are
        contiguous."""
        found = self.found
        rows = f"t * {found.batch * found.width}"
        return f"below + {rows} + place" if found.width == found.depth else f"below + {rows} + i * {found.width} + k"

    def put_inputs(self) -> list[str]:
        found = self.found
        inside = self.inside()
        again = self.asked_again("layer > 0", found.depth, [f"if (!({inside})) continue;"] if inside else [], "ahead", self.below())
        store = [*([f"if ({inside})"] if inside else []), f"{'    ' if inside else ''}*(float4*)(inputs + place) = ahead[at];"]
        return [*(again if found.layers > 1 else []), *self.groups(found.depth, store)]

    def put_hidden(self) -> list[str]:
        """Returns lines that copy the previous hidden state into shared memory as soon as all of it is available."""
        found, cells = self.found, self.cells
        start, turns = found.states[0], -(-found.batch * found.hidden_depth // 4 // cells.threads)
        last = "(direction == 0 ? t - 1 : t + 1)" if found.directions == 2 else "(t - 1)"
        within = "place" if found.width == found.hidden_depth else f"i * {found.width} + k"
        source = f"own + {last} * {found.batch * found.width} + {within}"
        at = address(start, ("row", "i", "k"))
        first = f"four(h0 + {at})"
        if start.strides[2] != 1 or any(n % 4 for n in (*start.strides[:2], start.offset)):
            first = "float4{" + ", ".join(self.widened(f"h0[{at} + {n * start.strides[2]}]") for n in range(4)) + "}"
        inside = found.hidden < found.hidden_depth
        test = [f"if (k >= {found.hidden}) continue;"] if inside else []
        return [
            f"float4 fresh[{turns}];",
            *self.groups(found.hidden_depth, [*test, f"fresh[at] = step == 0 ? {first} : read_fresh({source});"]),
            *self.asked_again("step > 0", found.hidden_depth, test, "fresh", source),
            *self.groups(found.hidden_depth, [*test, "*(float4*)(before + place) = fresh[at];"]),
        ]

    def asked_again(self, when: str, depth: int, test: list[str], held: str, source: str) -> list[str]:
        """Returns a loop that keeps reading the missing parts of `held` until all are available. Each round issues all reads together. If it issued
        them one after another, each read would cost a round trip to the L2 cache; this made a kernel whose blocks were slightly early 2.8 times
        slower (bench/results/recurrent-caches-h200.json)."""
        return [
            f"for (bool missing = {when}; missing;) {{",
            "    missing = false;",
            *indented(self.groups(depth, [*test, f"if (absent({held}[at])) {held}[at] = read_fresh({source}), missing = true;"])),
            "}",
        ]

    def cell(self) -> list[str]:
        """Returns lines that compute a cell's hidden state from its sums. It is written first, because all blocks wait for it."""
        found = self.found
        gates = [f"sum[0][{s}] + bias[{s}]" for s in range(found.sums)]
        if found.kind == "lstm":
            lines = [
                f"state = gate_open({gates[1]}) * state + gate_open({gates[0]}) * tanhf({gates[2]});",
                f"const float hidden = gate_open({gates[3]}) * tanhf(state);",
            ]
        elif found.kind == "gru":
            lines = [
                f"const float reset = gate_open({gates[0]}), update = gate_open({gates[1]});",
                f"const float value = tanhf({gates[2]} + reset * ({gates[3]}));",
                "const float hidden = (1.0f - update) * value + update * state;",
                "state = hidden;",
            ]
        elif found.kind == "tanh":
            lines = [f"const float hidden = tanhf({gates[0]});"]
        else:
            lines = [f"const float value = {gates[0]}, hidden = value < 0.0f ? 0.0f : value;"]
        feature = f"direction * {found.hidden} + unit" if found.directions == 2 else "unit"
        lines.append(f"write_fresh(own + (t * {found.batch} + b) * {found.width} + unit, "
                     "__float_as_uint(hidden) == ABSENT ? __uint_as_float(0x7fffffffu) : hidden);")  # fmt: skip
        if self.shown == 0:
            texts = ["b", "t", feature] if found.batch_first else ["t", "b", feature]
            tail = self.work.tail.statements(CUDA, texts, "hidden")
            lines += [f"if (layer == {found.layers - 1}) {{", *indented(tail), "}"] if found.layers > 1 else tail
        at_end = [f"{argument.name}[(row * {found.batch} + b) * {found.hidden} + unit] = {'hidden' if argument.name == 'last_hidden' else 'state'};"
                  for argument in self.extra]  # fmt: skip
        if self.shown:
            at_end = [*self.work.tail.statements(CUDA, ["row", "b", "unit"], "hidden" if self.shown == 1 else "state"), *at_end]
        if at_end:
            lines += [f"if (step == {found.steps - 1}) {{", *indented(at_end), "}"]
        return lines

    # -- the launcher --------------------------------------------------------------------------------------------------------

    def launcher(self) -> list[str]:
        found, cells = self.found, self.cells
        each = len(found.weights[0])
        shifts = [[row[at].offset for row in found.matrices] if at < 2 else [0] * self.sets for at in range(each)]
        columns = [", ".join(argument.name + (f" + {shift}" if shift else "") for argument, shift in zip(self.weights[at::each], own, strict=True))
                   for at, own in enumerate(shifts)]  # fmt: skip
        shared = cells.shared_bytes(found)
        pointers = ", ".join(f"(void*)&{argument.name}" for argument in self.passed)
        return [
            f'extern "C" int {NAME}({parameters(self.arguments, "__restrict__")}, float* scratch, void* stream) {{',
            f"    const {NAME}_Weights weights = {{{', '.join(f'{{{column}}}' for column in columns)}}};",
            f"    void* given[] = {{{pointers}, (void*)&weights, (void*)&scratch}};",
            f"    cudaMemsetAsync(scratch, 0xff, {found.exchange_bytes}ull, (cudaStream_t)stream);  // every hidden state is absent",
            "    int device = 0, most = 0;",
            "    cudaGetDevice(&device);",
            "    cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);",
            "    // More than half of what there is: each block has a multiprocessor to itself. All would wait for two that share one.",
            f"    const int shared = most / 2 + 2048 > {shared} ? most / 2 + 2048 : {shared};",
            f"    cudaFuncSetAttribute({NAME}_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);",
            "    // Blocks wait for each other: a cooperative launch has all of them on the device, or fails.",
            f"    return (int)cudaLaunchCooperativeKernel({NAME}_kernel, dim3({cells.blocks(found)}), dim3({cells.threads}), given, shared, "
            "(cudaStream_t)stream);",
            "}",
        ]


def address(place: Strided, texts: tuple[str, ...]) -> str:
    terms = [f"{text} * {stride}" if stride != 1 else text for text, stride in zip(texts, place.strides, strict=True) if stride]
    terms += [str(place.offset)] if place.offset else []
    return " + ".join(terms) or "0"
