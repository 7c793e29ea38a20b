"""The choices that determine a printed program, and single changes to them."""

from __future__ import annotations

from pydantic import BaseModel

# Strategies that only remove work. The first program applies all of them.
SAFE = (
    "fuse-pointwise", "fuse-row-reduction", "fuse-matmul-tail", "one-pass-softmax", "vectorise", "row-cache",
    "own-pool", "own-depthwise", "split-product", "own-scan", "own-matvec", "own-order", "atomic-sums", "persistent-recurrence", "persistent-loop",
    "stream-through-softmax", "half-product", "grouped-product",
)  # fmt: skip
# Strategies whose gain depends on the device and the shapes. Moves try them one at a time.
TRIED = ("parallel-split", "non-temporal-stores", "cuda-graph", "overlap-streams", "leave-to-library", "channels-last")


class Options(BaseModel):
    """The compiler's choices: strategies and integer knobs. `strategies` apply to the whole program. An entry in `groups` adds a strategy for one
    group or, with a leading "-", removes it."""

    strategies: list[str] = list(SAFE)
    groups: dict[str, list[str]] = {}
    knobs: dict[str, int] = {}
    group_knobs: dict[str, dict[str, int]] = {}

    def on(self, strategy: str, group: str = "") -> bool:
        own = self.groups.get(group, [])
        return strategy in own or (strategy in self.strategies and f"-{strategy}" not in own)

    def knob(self, name: str, group: str, default: int) -> int:
        return self.group_knobs.get(group, {}).get(name, self.knobs.get(name, default))

    def with_strategy(self, strategy: str, group: str = "") -> Options:
        if not group:
            return self.model_copy(update={"strategies": [*self.strategies, strategy]})
        return self.model_copy(update={"groups": {**self.groups, group: [*self.groups.get(group, []), strategy]}})

    def choose(self, strategy: str, group: str, on: bool) -> Options:
        """Turns the strategy on or off for one group ("" for the whole program), overriding any earlier choice."""
        rest = [s for s in self.groups.get(group, []) if s not in (strategy, f"-{strategy}")]
        if not group:
            kept = [s for s in self.strategies if s != strategy]
            return self.model_copy(update={"strategies": [*kept, strategy] if on else kept})
        plain = self.model_copy(update={"groups": {**{g: s for g, s in self.groups.items() if g != group}, **({group: rest} if rest else {})}})
        return plain if plain.on(strategy, group) is on else plain.with_strategy(strategy if on else f"-{strategy}", group)

    def with_knob(self, name: str, value: int, group: str) -> Options:
        return self.model_copy(update={"group_knobs": {**self.group_knobs, group: {**self.group_knobs.get(group, {}), name: value}}})


class Move(BaseModel):
    """A single change based on a measurement."""

    strategy: str  # a name from the strategy catalogue
    group: str = ""  # "" for the whole program
    options: Options
    expectation: str  # the expected change, with a figure if there is one
    expected_speedup: float = 1.0  # relative to the previous program
    why: str  # the evidence for this move
