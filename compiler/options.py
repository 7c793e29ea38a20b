"""What can be chosen about a printed program, and one change of it."""

from __future__ import annotations

from pydantic import BaseModel

# Strategies that only remove work: the first program applies them all.
SAFE = (
    "fuse-pointwise", "fuse-row-reduction", "fuse-matmul-tail", "one-pass-softmax", "vectorise", "row-cache",
    "own-pool", "own-depthwise", "split-product", "own-scan", "own-matvec", "own-order", "persistent-recurrence", "stream-through-softmax",
    "half-product",
)  # fmt: skip
# Strategies whose gain depends on the device and the shapes: moves try them one by one.
TRIED = ("parallel-split", "non-temporal-stores", "cuda-graph", "overlap-streams", "leave-to-library", "channels-last")


class Options(BaseModel):
    """`strategies` hold for the whole program; `groups` adds or (with a leading "-") takes away for one group; knobs are numbers."""

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
        """The strategy on or off for one group ("" for the whole program), whatever was chosen before."""
        rest = [s for s in self.groups.get(group, []) if s not in (strategy, f"-{strategy}")]
        if not group:
            kept = [s for s in self.strategies if s != strategy]
            return self.model_copy(update={"strategies": [*kept, strategy] if on else kept})
        plain = self.model_copy(update={"groups": {**{g: s for g, s in self.groups.items() if g != group}, **({group: rest} if rest else {})}})
        return plain if plain.on(strategy, group) is on else plain.with_strategy(strategy if on else f"-{strategy}", group)

    def with_knob(self, name: str, value: int, group: str) -> Options:
        return self.model_copy(update={"group_knobs": {**self.group_knobs, group: {**self.group_knobs.get(group, {}), name: value}}})


class Move(BaseModel):
    """One change that follows from what was measured."""

    strategy: str  # a name of the strategy catalogue
    group: str = ""  # "" for the whole program
    options: Options
    expectation: str  # what should change, with a figure where there is one
    expected_speedup: float = 1.0  # over the program before
    why: str  # the evidence that led here
