"""The components of a pass: the pieces that a block computes one after another, the locations of their values, and the outside values that they
read."""

from __future__ import annotations

from dataclasses import dataclass, field

from compiler.families.epilogue import Prologue
from compiler.families.stepped.passes import Stack


@dataclass(frozen=True)
class Slot:
    """Shared memory for a value: `width` floats per row, with rows `pitch` floats apart."""

    name: str
    width: int

    @property
    def pitch(self) -> int:
        return -(-self.width // 4) * 4


@dataclass(frozen=True)
class Operand:
    """An operand of a product or a row operator: `width` neighbouring floats of each row of a slot, from `offset` on."""

    slot: Slot
    offset: int
    width: int


@dataclass(frozen=True)
class Weight:
    """A matrix in the order (depth, columns). `code` packs it from the graph's value."""

    value: str
    code: str
    depth: int
    columns: int


@dataclass
class Piece:
    into: Slot


@dataclass
class Product(Piece):
    x: Operand
    weight: Weight
    bias: str  # the graph's value, or ""


@dataclass
class RowOperator(Piece):
    kind: str
    x: Operand
    scale: str = ""  # a layer norm's weight and bias, as graph values
    shift: str = ""
    eps: float = 0.0
    correction: int = 0  # of a variance: the number subtracted from the number of elements


@dataclass
class Loop(Piece):
    prologue: Prologue
    reads: dict[str, bool]  # slot name -> whether only the element at the same place is read


@dataclass(frozen=True)
class Pointer:
    """An outside tensor as loops read it: it advances by `row` elements per row and by `step` elements per pass."""

    name: str
    value: str
    row: int
    step: int


@dataclass(frozen=True)
class Table:
    """Numbers that differ from pass to pass, one for each pass, as text of type `dtype`."""

    dtype: str
    numbers: tuple[str, ...]


@dataclass
class Body:
    """A pass. `carried` pairs the slot that the next pass reads with the slot of the new value, and `begins` fills the former before the first
    pass. `tables` holds numbers that differ from pass to pass, keyed by the name of the pointer through which loops read them."""

    steps: int
    batch: int
    pieces: list[Piece] = field(default_factory=list)
    carried: list[tuple[Slot, Slot]] = field(default_factory=list)
    begins: list[Loop] = field(default_factory=list)
    pointers: dict[tuple[str, int, int], Pointer] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)
    stacks: list[tuple[Stack, Slot]] = field(default_factory=list)
    others: list[tuple[Stack, int, Loop]] = field(default_factory=list)  # what fills parts of stacks that no pass computes
    finals: list[tuple[str, Slot]] = field(default_factory=list)

    @property
    def weights(self) -> list[Weight]:
        return list(dict.fromkeys(piece.weight for piece in self.pieces if isinstance(piece, Product)))

    @property
    def slots(self) -> list[Slot]:
        return list(dict.fromkeys([*(slot for pair in self.carried for slot in pair), *(piece.into for piece in self.pieces)]))

    @property
    def loops(self) -> list[Loop]:
        return [*self.begins, *(loop for _, _, loop in self.others), *(piece for piece in self.pieces if isinstance(piece, Loop))]

    @property
    def flops(self) -> int:
        products = sum(2 * p.weight.depth * p.weight.columns for p in self.pieces if isinstance(p, Product))
        loops = sum(p.into.width * len(p.prologue.kernel.ops) for p in self.pieces if isinstance(p, Loop))
        return self.steps * self.batch * (products + loops + sum(8 * p.into.width for p in self.pieces if isinstance(p, RowOperator)))

    def reads(self) -> list[str]:
        """Returns the outside values that the kernel reads."""
        found = [pointer.value for pointer in self.pointers.values()]
        found += [weight.value for weight in self.weights]
        found += [p.bias for p in self.pieces if isinstance(p, Product) and p.bias]
        found += [name for p in self.pieces if isinstance(p, RowOperator) for name in (p.scale, p.shift) if name]
        return list(dict.fromkeys(found))
