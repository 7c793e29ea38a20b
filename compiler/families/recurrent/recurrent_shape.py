"""What a recurrent layer computes, and how its cells are shared out among blocks and warps: see recurrent.py."""

from __future__ import annotations

from dataclasses import dataclass

SPAN = 128  # depths that the lanes of a warp take at once, four each


@dataclass(frozen=True)
class Strided:
    """Strides (in elements) and offset of a tensor; of `x` over (time, sequence, feature)."""

    strides: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class Recurrence:
    """`weights`: names of (input, hidden[, input bias, hidden bias]) of each layer and direction, `matrices` how the first two lie."""

    kind: str  # "lstm", "gru", "tanh", "relu"
    steps: int
    batch: int
    inputs: int
    hidden: int
    layers: int
    directions: int
    batch_first: bool
    x: Strided
    states: tuple[Strided, ...]  # of (layer and direction, sequence, unit): hidden, cell
    weights: tuple[tuple[str, ...], ...]
    matrices: tuple[tuple[Strided, Strided], ...]
    names: tuple[str, ...]  # values: x, hidden state, cell state
    dtype: str = "float32"  # of all of these; sums, states and what goes from block to block are in fp32

    @property
    def gates(self) -> int:
        return {"lstm": 4, "gru": 3}.get(self.kind, 1)

    @property
    def sums(self) -> int:
        """Of a cell: a GRU keeps what input and hidden state give to its candidate apart."""
        return {"lstm": 4, "gru": 4}.get(self.kind, 1)

    @property
    def width(self) -> int:
        """Features that a layer gives to the next."""
        return self.directions * self.hidden

    @property
    def depth(self) -> int:
        """Of the input's product, padded: the longest of all layers."""
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
    """`layers` at once; a block has `units` hidden units of one layer and direction, a warp `warp_units` of them for one of `parts` of the batch."""

    layers: int
    units: int
    warp_units: int
    parts: int

    @property
    def threads(self) -> int:
        return 32 * self.units // self.warp_units * self.parts

    def sequences(self, recurrence: Recurrence) -> int:
        """Of a warp."""
        return -(-recurrence.batch // self.parts)

    def blocks_a_chain(self, recurrence: Recurrence) -> int:
        return -(-recurrence.hidden // self.units)

    def blocks(self, recurrence: Recurrence) -> int:
        return self.blocks_a_chain(recurrence) * self.layers * recurrence.directions

    def stages(self, recurrence: Recurrence) -> int:
        return -(-recurrence.layers // self.layers)

    def chain(self, recurrence: Recurrence) -> int:
        """Steps that depend on each other."""
        return self.stages(recurrence) * (recurrence.steps + self.layers - 1)

    def ahead(self, recurrence: Recurrence) -> int:
        """Groups of four inputs that a thread reads for the next step."""
        return -(-recurrence.batch * recurrence.depth // 4 // self.threads)

    def rows(self, recurrence: Recurrence) -> int:
        """Of shared memory, with those of sequences that do not exist."""
        return self.parts * self.sequences(recurrence)

    def shared_bytes(self, recurrence: Recurrence) -> int:
        return 4 * self.rows(recurrence) * (recurrence.depth + recurrence.hidden_depth)


def padded(depth: int) -> int:
    return -(-depth // SPAN) * SPAN
