"""Distributes rows among blocks, chooses the values that stay in shared memory, and models the duration of a pass."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.families.stepped.pieces import Body, Loop, Product, RowOperator, Weight
from compiler.figures import DeviceFigures

ROWS = (1, 2, 4, 8)
THREADS = (256, 512, 1024)  # the last one only to read weights from the L2 cache faster
ROOM = 220 << 10  # bytes of shared memory per block
CYCLES_US = 1.7e3
MEETING = 45  # cycles that a block-wide barrier takes
L2_BYTES = {256: 32, 512: 45, 1024: 50}  # threads of a block -> bytes per cycle that they read from the L2 cache
MEMORY = 600  # cycles until a value from outside arrives
LAUNCH_US, PRODUCT_US = 2.5, 5.0  # of a small kernel and of a small product in a CUDA graph


@dataclass(frozen=True)
class Split:
    """The way in which the threads of a block share a product: `wide` columns each, and the depth in `parts`."""

    wide: int
    parts: int


@dataclass(frozen=True)
class Block:
    rows: int
    threads: int

    def split(self, weight: Weight) -> Split:
        wide = next(n for n in (4, 2, 1) if weight.columns % n == 0)
        groups = weight.columns // wide
        parts = 1
        while groups * parts * 2 <= self.threads and weight.depth // (parts * 2) >= 8:
            parts *= 2
        return Split(wide, parts)

    def parts_floats(self, body: Body) -> int:
        """Returns the size of the memory for sums over parts of a depth."""
        splits = [(self.split(weight), weight) for weight in body.weights]
        return max((split.parts * self.rows * weight.columns for split, weight in splits if split.parts > 1), default=0)

    def slots_floats(self, body: Body) -> int:
        return sum(slot.pitch for slot in body.slots) * self.rows

    def resident(self, body: Body) -> list[Weight]:
        """Returns the weights that stay in shared memory, the smallest first. The others are read from the L2 cache in every pass."""
        left = ROOM - 4 * (self.slots_floats(body) + self.parts_floats(body))
        found = []
        for weight in sorted(body.weights, key=lambda one: one.depth * one.columns):
            size = 4 * padded(weight)
            if size <= left:
                found.append(weight)
                left -= size
        return found

    def shared_bytes(self, body: Body) -> int:
        return 4 * (self.slots_floats(body) + self.parts_floats(body) + sum(map(padded, self.resident(body))))

    def fits(self, body: Body) -> bool:
        return self.shared_bytes(body) <= ROOM

    def blocks(self, body: Body) -> int:
        return -(-body.batch // self.rows)

    def step_us(self, body: Body) -> float:
        """Models one pass of one block."""
        cycles, resident = 0.0, self.resident(body)
        for piece in body.pieces:
            if isinstance(piece, Product):
                weight, split = piece.weight, self.split(piece.weight)
                vectors = weight.depth * weight.columns / (32 * split.wide)  # steps of a warp
                arithmetic = vectors * max(self.rows * split.wide / 4, split.wide + self.rows / 4) * 1.3
                from_cache = 0.0 if weight in resident else 4 * weight.depth * weight.columns / L2_BYTES.get(self.threads, L2_BYTES[256])
                cycles += max(arithmetic, from_cache) + 250 + MEETING * 2
            elif isinstance(piece, RowOperator):
                cycles += piece.x.width / 32 * 10 + 250 + MEETING
            elif isinstance(piece, Loop):
                cycles += -(-self.rows * piece.into.width // self.threads) * 6.0 * len(piece.prologue.kernel.ops) + 80 + MEETING
                cycles += MEMORY * any(pointer.step for pointer in body.pointers.values() if f"{pointer.name}_now" in piece.prologue.kernel.arguments)
        return 1.2 * (cycles + 2 * MEETING + 60 * len(body.carried)) / CYCLES_US

    def spent_ms(self, body: Body, figures: DeviceFigures) -> float:
        waves = -(-self.blocks(body) // figures.units)
        return 0.005 + waves * body.steps * self.step_us(body) / 1e3


def padded(weight: Weight) -> int:
    return -(-weight.depth * weight.columns // 4) * 4


def choose(body: Body, figures: DeviceFigures, rows: int = 0, threads: int = 0) -> Block | None:
    """Returns the distribution that the model predicts to be fastest, or None if none fits. `rows` and `threads` fix these numbers if they are not
    0."""
    found = [Block(r, t) for r in ((rows,) if rows else ROWS) for t in ((threads,) if threads else THREADS)]
    fitting = [block for block in found if block.fits(body) and (block.threads < 1024 or len(block.resident(body)) < len(body.weights))]
    return min(fitting, key=lambda block: block.spent_ms(body, figures), default=None)


def launched_ms(body: Body, figures: DeviceFigures) -> float:
    """Models the same passes as separate kernels in a CUDA graph."""
    spent = 0.0
    for piece in body.pieces:
        if isinstance(piece, Product):
            flops = 2 * body.batch * piece.weight.depth * piece.weight.columns
            spent += max(PRODUCT_US / 1e3, 1.5 * figures.compute_ms(flops, "3xtf32"))
        else:
            spent += max(LAUNCH_US / 1e3, figures.memory_ms(8 * body.batch * piece.into.width))
    return spent * body.steps
