"""Recurrent layers (LSTM, GRU, RNN) as one persistent kernel that stays on the device for all time steps.

At small batch sizes, the time of a step is dominated by launch overhead and by reading the recurrent weights, not by arithmetic. Here, each block
owns some hidden units of one layer and keeps their weights in registers for all steps (G. Diamos et al., Persistent RNNs, ICML 2016). Blocks exchange
hidden states through the L2 cache. Values that have not been written yet hold a special NaN that arithmetic never produces. Each value thus serves as
its own ready flag, and a step waits for only one trip through the cache. While a hidden state is in flight, a block computes the product with the
next step's input, which does not depend on any hidden state. Unidirectional layers run concurrently, each a few steps behind the layer below (J.
Appleyard et al., arXiv 1604.01946), so a stack of L layers takes T + L - 1 steps instead of L * T. In bidirectional networks, the layers run one
after another, with both directions of a layer running concurrently.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.families.family import Cost, Match, Printed, Printers, Setting, Work, plain_cost
from compiler.families.recurrent import recurrent_cuda
from compiler.families.recurrent.recurrent_cuda import RESERVED
from compiler.families.recurrent.recurrent_shape import Cells, Recurrence, Strided
from compiler.graph.ir import FLOATS
from compiler.graph.layout import Layout
from compiler.graph.network import Network, count, plain
from compiler.kernel.builder import Refused
from verifier.graph import Node

KINDS = {"aten.lstm.input": "lstm", "aten.gru.input": "gru", "aten.rnn_tanh.input": "tanh", "aten.rnn_relu.input": "relu"}
LANES = 32  # cells (unit, sequence) per warp; after the reduction over lanes, each lane holds one of them
LEAST_UNITS = 4  # per block; fewer units would only increase the number of readers of each hidden state
MOST_THREADS = 512
REGISTERS = 65536  # per multiprocessor
OWN_REGISTERS = 44  # registers per thread, in addition to those for weights, sums and prefetched values
EXCHANGE_US = 1.0  # time that a hidden state takes from one multiprocessor to the shared memory of all others
LIBRARY_US = 2.4  # time per step, layer and direction with cuDNN in a CUDA graph on an H200
CYCLES_US = 1.7e3


@dataclass(frozen=True)
class Layer:
    """The properties of a node that do not depend on how it is computed."""

    recurrence: Recurrence
    results: dict[int, str]  # result (0: hidden states of all steps, 1: last hidden states, 2: last cell states) -> value, if it is read


class Recurrent:
    name = "recurrent"
    strategies = ("persistent-recurrence",)

    def match(self, network: Network, node: Node, setting: Setting) -> Match | None:
        kind = KINDS.get(node.op)
        if kind is None:
            return None
        recurrence, reads = read_layer(network, node, kind)
        found = {user.args[1]: user.name for user in (network.nodes[name] for name in network.users[node.name]) if user.op == "getitem"}
        if not found or node.name in network.results or len(found) != len(network.users[node.name]):
            raise Refused("a recurrence whose results are not taken apart")
        shown = min(found)
        cells = choose(recurrence, setting.figures.units, {})
        if cells is None:
            raise Refused(f"the weights do not stay in the registers of {setting.figures.units} multiprocessors, or the batch is too large for them")
        if spent_ms(recurrence, cells) >= library_ms(recurrence):
            raise Refused("by the model the library's recurrence is no slower")
        order = {name: at for at, name in enumerate(network.nodes)}
        return Match(
            family=self.name, anchor=node.name, members=(node.name, *sorted(found.values(), key=order.__getitem__)), value=found[shown],
            reads=tuple(reads), groups=(1, 1, 1), detail=Layer(recurrence, found), reserved=RESERVED,
        )  # fmt: skip

    def cost(self, work: Work) -> Cost:
        recurrence: Recurrence = work.detail.recurrence
        cells = cells_of(work)
        cost = plain_cost(work, recurrence.flops)
        chain = cells.chain(recurrence)
        cost.floor_ms = max(cost.floor_ms, chain * EXCHANGE_US / 1e3)
        cost.expected = (
            f"{chain} dependent steps in one kernel, about {spent_ms(recurrence, cells):.2f} ms; the library takes "
            f"{recurrence.layers * recurrence.directions * recurrence.steps} steps, about {library_ms(recurrence):.1f} ms in a CUDA graph"
        )
        return cost

    def knobs(self, work: Work) -> dict[str, tuple[tuple[int, ...], int]]:
        recurrence, units, now = work.detail.recurrence, work.setting.figures.units, cells_of(work)
        chosen = {"units": now.units, "warp-units": now.warp_units, "batch-parts": now.parts}
        found = {}
        for name, values in (("units", (4, 6, 8, 12, 16)), ("warp-units", (1, 2, 4)), ("batch-parts", (1, 2, 4))):
            tried = {value: choose(recurrence, units, {**chosen, name: value}) for value in values}
            fitting = [value for value, cells in tried.items() if cells is not None and cells.layers == now.layers]
            found[name] = (tuple(sorted({*fitting, chosen[name]})), chosen[name])
        return found

    @property
    def printers(self) -> Printers:
        return {"cuda": self.print_cuda}

    def print_cuda(self, work: Work) -> Printed:
        return recurrent_cuda.printed(work, work.detail.recurrence, work.detail.results, cells_of(work))


def read_layer(network: Network, node: Node, kind: str) -> tuple[Recurrence, list[str]]:
    """Returns a description of what the node computes, and the values that it reads."""
    x = node.args[0]["ref"]
    states = [value["ref"] for value in (node.args[1] if kind == "lstm" else [node.args[1]])]
    names = [value["ref"] for value in node.args[2]]
    biases, layers, dropout, train, both, batch_first = (plain(a) for a in node.args[3:9])
    directions = 2 if both else 1
    if dropout and train and layers > 1:
        raise Refused("a recurrence with dropout between its layers is left to the library")
    each = 4 if biases else 2
    if len(names) != each * layers * directions:
        raise Refused("a recurrence with projections is left to the library")
    values = [x, *states, *names]
    dtype = network.spec(x).dtype
    if dtype not in FLOATS or any(network.spec(value).dtype != dtype for value in values):
        raise Refused("a recurrence of several types, or of float64, is left to the library")
    shape = network.spec(x).shape
    if len(shape) != 3:
        raise Refused("a recurrence over one sequence without a batch is left to the library")
    batch, steps = (shape[0], shape[1]) if batch_first else (shape[1], shape[0])
    weights = tuple(tuple(names[at * each : at * each + each]) for at in range(layers * directions))
    hidden = network.spec(weights[0][1]).shape[1]
    if hidden % 4 or shape[2] % 4:
        raise Refused("a recurrence over sizes that are no multiples of 4 is left to the library")
    layout = network.layouts[x]
    outer = layout.strides[:2] if not batch_first else layout.strides[1::-1]
    found = Recurrence(
        kind=kind, steps=steps, batch=batch, inputs=shape[2], hidden=hidden, layers=layers, directions=directions, batch_first=bool(batch_first),
        x=Strided((*outer, layout.strides[2]), layout.offset), states=tuple(strided(network.layouts[state]) for state in states),
        weights=weights, matrices=tuple((strided(network.layouts[row[0]]), strided(network.layouts[row[1]])) for row in weights),
        names=(x, *states), dtype=dtype,
    )  # fmt: skip
    if max(count(network.spec(layout.base)), found.exchange_bytes // 4) >= 2**31:
        raise Refused("a recurrence over 2^31 values or more is left to the library")
    aligned = [found.x, *(matrix for row in found.matrices for matrix in row)]
    if any(place.strides[-1] != 1 or place.offset % 4 or any(stride % 4 for stride in place.strides[:-1]) for place in aligned):
        raise Refused("a recurrence whose rows do not begin at multiples of four elements is left to the library")
    if any(not dense(network.layouts[name]) for row in weights for name in row[2:]):
        raise Refused("a bias with gaps is left to the library")
    if len({(row[0].strides, row[1].strides) for row in found.matrices[directions:]}) > 1:
        raise Refused("layers whose weights lie differently are left to the library")
    if any(row[0].strides != found.matrices[0][0].strides for row in found.matrices[:directions]):
        raise Refused("directions whose weights lie differently are left to the library")
    return found, list(dict.fromkeys([x, *states, *names]))


def strided(layout: Layout) -> Strided:
    return Strided(layout.strides, layout.offset)


def dense(layout: Layout) -> bool:
    return layout.contiguous and not layout.offset


def choose(recurrence: Recurrence, units: int, wanted: dict[str, int]) -> Cells | None:
    """Distributes the cells among blocks and warps so that all blocks run concurrently and the weights stay in registers. Returns None if that is
    impossible. As many layers as fit run concurrently. `wanted` fixes some of the parameters."""
    directions = recurrence.directions
    for layers in range(recurrence.layers, 0, -1) if directions == 1 else (1,):
        chains = layers * directions
        if chains > units:
            continue
        least = max(LEAST_UNITS, -(-recurrence.hidden // (units // chains)))
        found = [
            cells
            for warp_units in ((wanted["warp-units"],) if "warp-units" in wanted else (1, 2) if recurrence.gates > 1 else (2, 1))
            for parts in ((wanted["batch-parts"],) if "batch-parts" in wanted else (1, 2))
            if (cells := shared_out(recurrence, layers, wanted.get("units", least), warp_units, parts)) and cells.blocks(recurrence) <= units
        ]
        if found:
            return min(found, key=lambda cells: step_us(recurrence, cells))
    return None


def shared_out(recurrence: Recurrence, layers: int, units: int, warp_units: int, parts: int) -> Cells | None:
    units = -(-units // warp_units) * warp_units
    cells = Cells(layers, units, warp_units, parts)
    if parts > recurrence.batch or cells.threads > MOST_THREADS or warp_units * cells.sequences(recurrence) > LANES:
        return None
    limit = min(255, REGISTERS // cells.threads // 8 * 8)
    return cells if registers(recurrence, cells) <= limit and cells.shared_bytes(recurrence) <= 200 << 10 else None


def registers(recurrence: Recurrence, cells: Cells) -> int:
    weights = cells.warp_units * recurrence.gates * (recurrence.depth + recurrence.hidden_depth) // LANES
    sums = cells.warp_units * cells.sequences(recurrence) * recurrence.sums
    return weights + sums + 4 * cells.ahead(recurrence) + OWN_REGISTERS


def step_us(recurrence: Recurrence, cells: Cells) -> float:
    """Models the time of a step: the exchange (which hides the product with the input), followed by the product with the hidden state, its sums over
    lanes, and the cell."""
    warps = cells.threads // 32

    def cycles(depth: int) -> float:
        """Returns the larger of the times for arithmetic (warps take turns on four schedulers) and for shared-memory reads (128 bytes per cycle)."""
        reads = depth // LANES * cells.sequences(recurrence)  # floats per lane
        return max(-(-warps // 4) * reads * cells.warp_units * recurrence.gates, warps * reads) * 1.3

    sums = cells.warp_units * cells.sequences(recurrence) * recurrence.sums * 3.5 * -(-warps // 4)
    latency = 150 if warps >= 8 else 250  # exposed latency of shared-memory reads
    hidden = cycles(recurrence.hidden_depth) + sums + 200 + latency
    return max(EXCHANGE_US, cycles(recurrence.depth) / CYCLES_US + 0.3) + hidden / CYCLES_US


def spent_ms(recurrence: Recurrence, cells: Cells) -> float:
    return cells.chain(recurrence) * step_us(recurrence, cells) / 1e3 + recurrence.exchange_bytes / 2e9 + 0.01


def library_ms(recurrence: Recurrence) -> float:
    return recurrence.layers * recurrence.directions * recurrence.steps * LIBRARY_US / 1e3


def cells_of(work: Work) -> Cells:
    recurrence, units = work.detail.recurrence, work.setting.figures.units
    usual = choose(recurrence, units, {})
    assert usual is not None, "a recurrence that fits in no way is declined"
    wanted = {
        "units": work.knob("units", usual.units), "warp-units": work.knob("warp-units", usual.warp_units),
        "batch-parts": work.knob("batch-parts", usual.parts),
    }  # fmt: skip
    for dropped in (0, 1, 2):  # if the parameters are incompatible, they fall back to their defaults one by one, starting with the last
        found = choose(recurrence, units, dict(list(wanted.items())[: 3 - dropped]))
        if found is not None:
            return found
    return usual
