"""A simulated language model for landscapes. This module specifies the quality of its proposals, its errors, and the cost of its calls.

A workflow learns the landscape's times only through the verifier. The simulated model is better than chance because of `insight` (its changes address
the diagnosis) and `foresight` (it considers two changes and prefers the one that is actually better). These two numbers specify the model's
knowledge.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from agents.arena.landscape import Landscape
from agents.llm.messages import Delta, Reply, Request, Usage

PROFILE = "landscape"


@dataclass(frozen=True)
class Quality:
    """Probabilities, and the lognormal cost of one call, given as medians and the standard deviations of the logarithms."""

    name: str
    insight: float  # probability that a change addresses the diagnosed bottleneck, if any change does
    foresight: float  # probability that the better of two considered changes is proposed
    family_fault: float  # probability, per choice, that programs with it fail until it is repaired in this run; a plain retry does not help
    program_fault: float  # probability, per program, that it fails until it is repaired
    repair: float  # probability that a repair based on the report's evidence removes the fault
    perturbed: float = 0.3  # probability, per choice, that the first program deviates from the compiler's own choice
    tokens_in: float = 6_000
    tokens_in_log: float = 0.35
    tokens_out: float = 3_000
    tokens_out_log: float = 0.5
    dollars_in: float = 2.0e-6  # dollars per token
    dollars_out: float = 10.0e-6
    seconds_first: float = 2.0  # delay before a reply begins
    tokens_a_second: float = 80.0


QUALITIES = {
    quality.name: quality
    for quality in (
        Quality("weak", insight=0.3, foresight=0.2, family_fault=0.3, program_fault=0.15, repair=0.5),
        Quality("middling", insight=0.6, foresight=0.5, family_fault=0.2, program_fault=0.1, repair=0.7),
        Quality("strong", insight=0.85, foresight=0.8, family_fault=0.08, program_fault=0.04, repair=0.9),
    )
}


class PlayedModel:
    """A `ModelPort` with empty replies, because the roles in `landscape_roles` produce the content. Usage and cost are drawn at random."""

    def __init__(self, quality: Quality, seed: int):
        self.quality, self._draw = quality, random.Random(seed * 2 + 1)
        self.seconds = 0.0
        self.by_purpose: dict[str, int] = {}
        tokens = quality.tokens_in + quality.tokens_out
        self._estimate = {"calls": 1, "tokens": tokens, "dollars": quality.tokens_in * quality.dollars_in + quality.tokens_out * quality.dollars_out}

    def known(self, profile: str) -> bool:
        return profile == PROFILE

    def estimate(self, profile: str, request: Request) -> dict[str, float]:
        return self._estimate

    async def ask(self, profile: str, request: Request, *, key: str, run: str, on_delta: Callable[[Delta], Awaitable[None]]) -> Reply:
        quality, draw = self.quality, self._draw
        read = int(quality.tokens_in * draw.lognormvariate(0, quality.tokens_in_log))
        written = int(quality.tokens_out * draw.lognormvariate(0, quality.tokens_out_log))
        self.seconds += quality.seconds_first + written / quality.tokens_a_second
        self.by_purpose[request.purpose] = self.by_purpose.get(request.purpose, 0) + 1
        dollars = read * quality.dollars_in + written * quality.dollars_out
        return Reply(text="", model=f"played, {quality.name}", usage=Usage(input_tokens=read, output_tokens=written), dollars=dollars)


@dataclass(frozen=True)
class Written:
    """A program on a landscape: its point, and the model's error in it ("" if there is none)."""

    point: int
    fault: str = ""

    @property
    def source(self) -> str:
        return f"# point {self.point}\n# fault {self.fault}\n"

    @classmethod
    def read(cls, source: str) -> Written:
        point, fault = source.splitlines()
        return cls(int(point[8:]), fault[8:])


class Hand:
    """The simulated model's abilities in one run. Faults are drawn once. A fault that has been repaired based on evidence stays fixed."""

    def __init__(self, landscape: Landscape, quality: Quality, seed: int):
        self.landscape, self.quality, self.seed = landscape, quality, seed
        self._draw = random.Random(seed)
        at_fault = self._draw.random
        self.families = {
            (axis, value)
            for axis, each in enumerate(landscape.axes)
            for value in range(len(each.values))
            if value != each.default and at_fault() < quality.family_fault
        }
        self._programs: dict[int, bool] = {}

    def draw(self) -> random.Random:
        """Returns the run's only random stream. Workflows make the same requests in the same order every time, so the whole run is deterministic."""
        return self._draw

    def fault(self, point: int) -> str:
        """Returns the fault that this program would have if the model wrote it now."""
        for axis, value in enumerate(self.landscape.point(point)):
            if (axis, value) in self.families:
                return f"family {axis} {value}"
        if point not in self._programs:
            self._programs[point] = self._draw.random() < self.quality.program_fault
        return f"program {point}" if self._programs[point] else ""

    def learn(self, fault: str) -> None:
        kind, *numbers = fault.split()
        if kind == "family":
            self.families.discard((int(numbers[0]), int(numbers[1])))
        else:
            self._programs[int(numbers[0])] = False
