"""Generates synthetic tasks: chains of operators that are reproducible from a seed and unlike any benchmark task. This module only produces text and
runs nothing."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from agents.rl.data.leaks import Index, structures
from agents.rl.data.operators import ENDS, IMAGE, MAKERS, POINTWISE, ROWS, TOKENS, Shape, Step, numbers
from agents.rl.data.structure import structure
from verifier.source import sha256

LONGEST = 6  # number of operators before the final one
SIZES: Mapping[Shape, Mapping[str, tuple[int, ...]]] = {
    ROWS: {"batch": (64, 256, 1024, 2048), "features": (96, 256, 512, 1000, 1024, 4096)},
    TOKENS: {"batch": (2, 4, 8), "tokens": (64, 128, 200, 256), "features": (64, 128, 384, 512)},
    IMAGE: {"batch": (4, 8, 16), "channels": (8, 16, 32, 48), "height": (16, 28, 32, 56), "width": (16, 28, 32, 56)},
}
MOST_TRIES = 60  # draws per requested task before the generator is considered exhausted
INPUTS = ("torch.randn", "torch.rand")


@dataclass(frozen=True)
class Chain:
    """A task before it is turned into text. `kept`: the number of steps after which the value used by residual connections is saved."""

    start: Shape
    sizes: tuple[tuple[str, int], ...]
    steps: tuple[Step, ...]
    kept: int
    made: str  # how the input is generated

    @property
    def name(self) -> str:
        return "_".join(step.name for step in self.steps)[:80]

    @property
    def families(self) -> list[str]:
        return sorted({step.family for step in self.steps})

    def source(self) -> str:
        """Returns the source in KernelBench's format."""
        sizes = dict(self.sizes)
        wants = [name for name in sizes if any(name in line for step in self.steps for line in step.parameters)]
        seconds = [step.second for step in self.steps if step.second]
        given = ", ".join(["self", "x", *(["y"] if seconds else [])])
        constructor = [line for step in self.steps for line in step.parameters]
        body = [line for at, step in enumerate(self.steps) for line in self._lines(at, step)]
        inputs = [f"{self.made}({', '.join(self.start)})", *seconds]
        return "\n".join(
            [
                f'"""Synthetic: {", ".join(step.name for step in self.steps)}."""',
                "",
                "import torch",
                "import torch.nn as nn",
                "import torch.nn.functional as F",
                "",
                "",
                "class Model(nn.Module):",
                f"    def __init__({', '.join(['self', *wants])}):",
                "        super().__init__()",
                *(f"        {line}" for line in dict.fromkeys(constructor)),
                "",
                f"    def forward({given}):",
                *(f"        {line}" for line in body),
                "        return x",
                "",
                "",
                f"{', '.join(sizes)} = {', '.join(map(str, sizes.values()))}",
                "",
                "",
                "def get_inputs():",
                f"    return [{', '.join(inputs)}]",
                "",
                "",
                "def get_init_inputs():",
                f"    return [{', '.join(wants)}]",
                "",
            ]
        )

    def _lines(self, at: int, step: Step) -> Iterator[str]:
        if at == self.kept and any(later.family == "residual" for later in self.steps):
            yield "kept = x"
        yield from step.helpers
        yield f"x = {step.line}"


@dataclass(frozen=True)
class SyntheticTask:
    number: int  # number of the draw that produced it
    chain: Chain

    @property
    def source(self) -> str:
        return self.chain.source()

    @property
    def sha(self) -> str:
        return sha256(self.source)


class Exhausted(RuntimeError):
    """Raised if the maximum number of draws produced nothing new."""


def drawn(seed: int, number: int) -> Chain:
    """Returns the chain that a draw produces."""
    rng = random.Random(f"stitchwork synthetic 1:{seed}:{number}")
    start = rng.choice([ROWS, TOKENS, IMAGE])
    sizes = tuple((name, rng.choice(choices)) for name, choices in SIZES[start].items())
    length, makers = rng.randint(1, LONGEST), [maker for maker, weight in MAKERS for _ in range(weight)]
    kept = rng.randrange(length)
    steps: list[Step] = []
    while len(steps) < length:
        step = rng.choice(makers)(start, rng, len(steps))
        if step is not None and (step.family != "residual" or len(steps) > kept):
            steps.append(step)
    end = rng.choice([maker for maker, weight in ENDS for _ in range(weight)])
    last = end(start, rng, length) if end is not None else None
    return Chain(start, sizes, (*steps, *([last] if last else [])), kept, rng.choice(INPUTS))


def generate(count: int, seed: int, against: Mapping[str, str], say: Callable[[str], None] = lambda line: None) -> Iterator[SyntheticTask]:
    """Yields `count` tasks with different structures, none of which is similar to a source in `against` (sources keyed by name). The first n tasks
    are the same for every `count`. Raises `Exhausted`, or `ValueError` if a source in `against` cannot be read, because its similarity would be
    unknown."""
    known, unread = structures(against)
    if unread:
        raise ValueError(f"{unread[0]} cannot be read as Python, so no task can be compared with it")
    index, seen, made, refused = Index(known), set(), 0, 0
    for number in range(count * MOST_TRIES):
        if made == count:
            return
        task = SyntheticTask(number, drawn(seed, number))
        found = structure(task.source)
        if found.key in seen:
            continue
        seen.add(found.key)
        if next(index.alike(found), None) is not None:
            refused += 1
            continue
        made += 1
        if made % 1000 == 0:
            say(f"{made} of {count} tasks; {refused} were like one of the benchmarks")
        yield task
    if made < count:
        raise Exhausted(f"{made} tasks of {count}: the operators offer no more")


def wrong(chain: Chain, rng: random.Random) -> Chain:
    """Returns a chain with the same constructor and shapes that computes something else: one operator is replaced, left out or inserted."""
    steps = list(chain.steps)
    plain = [at for at, step in enumerate(steps) if step.family == "pointwise"]
    how = rng.choice(["swap", "leave", "add"] if plain and len(steps) > 1 else ["swap", "add"] if plain else ["add"])
    if how == "add":
        at = next((at for at, step in enumerate(steps) if step.family in ("reduction", "loss")), len(steps))
        shape = chain.start
        steps.insert(at, Step("shift", "pointwise", "x + 0.125", shape))
        return replace(chain, steps=tuple(steps), kept=chain.kept)
    at = rng.choice(plain)
    if how == "leave":
        steps[at] = Step("nothing", "pointwise", "x + 0.0", steps[at].out)
    else:
        name = rng.choice([name for name in POINTWISE if name != steps[at].name])
        steps[at] = Step(name, "pointwise", POINTWISE[name].format(**numbers(rng)), steps[at].out)
    return replace(chain, steps=tuple(steps))
