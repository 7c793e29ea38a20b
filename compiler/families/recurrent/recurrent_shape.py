"""Describes what a recurrent layer computes and how its cells are distributed among blocks and warps (see recurrent.py)."""

from __future__ import annotations

from dataclasses import dataclass

SPAN = 128  # depth elements that the lanes of a warp process together, four per lane


@dataclass(frozen=True)
class Strided:
    """The strides (in elements) and the offset of a tensor. The strides of `x` are for (time, sequence, feature)."""

    strides: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class Recurrence:
    """The computation of a recurrent layer. For each layer and direction, `weights` holds the names of (input, hidden[, input bias, hidden bias]),
    and `matrices` holds the layouts of the first two."""

    kind: str  # "lstm", "gru", "tanh", "relu"
    steps: int
    batch: int
    inputs: int
    hidden: int
    layers: int
    directions: int
    batch_first: bool
    x: Strided
    states: tuple[Strided, ...]  # hidden and cell state, with axes (layer and direction, sequence, unit)
    weights: tuple[tuple[str, ...], ...]
    matrices: tuple[tuple[Strided, Strided], ...]
    names: tuple[str, ...]  # graph values: x, hidden state, cell state
    dtype: str = "float32"  # type of all these values; sums, states and the values passed between blocks are always fp32

    @property
    def gates(self) -> int:
        return {"lstm": 4, "gru": 3}.get(self.kind, 1)

    @property
    def sums(self) -> int:
        """Number of sums per cell. A GRU keeps the contributions of the input and of the hidden state to its candidate separate."""
        return {"lstm": 4, "gru": 4}.get(self.kind, 1)

    @property
    def width(self) -> int:
        """Number of features that a layer passes to the next one."""
        return self.directions * self.hidden

    @property
    def depth(self) -> int:
        """Padded depth of the product with the input, which is the largest over all layers."""
        return padded(max(self.inputs, self.width if self.layers > 1 else 0))

    @property
    def hidden_depth(self) -> int:
        return padded(self.hidden)

    @property
    def flops(self) -> int:
        inputs = self.inputs + (self.layers - 1) * self.width
        return 2 * self.steps * self.batch * self.directions * self.gates * self.hidden * (inputs + self.layers * self.hidden)

    @property
    def exchange_bytes(self) -> int:
        return 4 * self.layers * self.steps * self.batch * self.width


@dataclass(frozen=True)
class Cells:
    """Distribution of the cells. `layers` layers run concurrently. A block owns `units` hidden units of one layer and direction, and a warp computes
    `warp_units` of them for one of the `parts` parts of the batch."""

    layers: int
    units: int
    warp_units: int
    parts: int

    @property
    def threads(self) -> int:
        return 32 * self.units // self.warp_units * self.parts

    def sequences(self, recurrence: Recurrence) -> int:
        """Returns the number of sequences per warp."""
        return -(-recurrence.batch // self.parts)

    def blocks_a_chain(self, recurrence: Recurrence) -> int:
        return -(-recurrence.hidden // self.units)

    def blocks(self, recurrence: Recurrence) -> int:
        return self.blocks_a_chain(recurrence) * self.layers * recurrence.directions

    def stages(self, recurrence: Recurrence) -> int:
        return -(-recurrence.layers // self.layers)

    def chain(self, recurrence: Recurrence) -> int:
        """Returns the number of steps that must run one after another."""
        return self.stages(recurrence) * (recurrence.steps + self.layers - 1)

    def ahead(self, recurrence: Recurrence) -> int:
        """Returns the number of groups of four inputs that a thread prefetches for the next step."""
        return -(-recurrence.batch * recurrence.depth // 4 // self.threads)

    def rows(self, recurrence: Recurrence) -> int:
        """Returns the number of rows in shared memory, including those of padding sequences."""
        return self.parts * self.sequences(recurrence)

    def shared_bytes(self, recurrence: Recurrence) -> int:
        return 4 * self.rows(recurrence) * (recurrence.depth + recurrence.hidden_depth)


def padded(depth: int) -> int:
    return -(-depth // SPAN) * SPAN
