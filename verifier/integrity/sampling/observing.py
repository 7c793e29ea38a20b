"""On the CPU: determines in whose code the timed process spends its calls, from samples that the judge takes from outside."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from verifier.build.artefacts import Artefacts
from verifier.integrity.artefacts import computes
from verifier.integrity.replays import Replaying
from verifier.integrity.sampling.mapped import Kind, Mapped
from verifier.integrity.sampling.native import Sample, Sampler, SamplerError, build_sampler
from verifier.judge.asking import Party
from verifier.timing.call import Call

MOMENTS, MOST_CALLS, MOST_SECONDS, LEAST_CALLS = 300, 150, 0.7, 2  # these seconds include the judge's own work between the calls
CLOSE = 0.06  # if a share is this close to a limit between classes, the same number of samples is taken again
LIMITS = (0.5, 0.1)
A_CALL = 40  # sampled moments per call, unless the call is too short
LEAST = 80  # minimum number of sampled moments; a busy host gets more time to reach it
MEAN_NS = (40_000, 4_000_000)

Function = tuple[int, str]  # number of the builder's library, and name


def key(library: int, name: str) -> str:
    """Returns the name that findings use for a function of an own library."""
    return f"{library}:{name}"


@dataclass
class Sampled:
    """Shares of the time during which any thread computed; waiting and the interpreter do not count for either side. `own` maps functions to shares,
    and `library` maps files to shares."""

    own: dict[Function, float] = field(default_factory=dict)
    library: dict[str, float] = field(default_factory=dict)
    moments: int = 0
    looked: bool = False  # whether the host allows sampling at all
    timed: Sampled | None = None  # the same counts for the timed calls themselves, each inspected at one instant
    reason: str = ""  # why there are no samples

    @property
    def share(self) -> float:
        return sum(self.own.values())


class Observing:
    """Samples the calls of a process. `look` makes calls until there are enough samples."""

    def __init__(self, party: Party, artefacts: Artefacts, folder: Path, seed: int):
        """Attaches to the process. Raises `SamplerError` if this host forbids sampling."""
        pid = party.spawned.main_pid()
        if pid is None:
            raise SamplerError("the host does not reveal in which process the program runs")
        spawned = party.spawned
        self.mapped = Mapped(pid, "/tmp" if spawned.wrapped else os.path.realpath(spawned.folder), spawned.wrapped, artefacts)
        self.sampler = Sampler(build_sampler(folder), pid, seed)
        self._read()

    def refresh(self, seen: Sequence[Sample]) -> None:
        """Reads the mappings again if a sample is outside all known mappings."""
        if any(sample.kind is Kind.UNKNOWN for sample in seen):
            self._read()

    def _read(self) -> None:
        try:
            self.sampler.know(self.mapped.read())
        except OSError as error:
            raise SamplerError(f"the process's memory cannot be inspected: {error.strerror}") from None

    def look(self, replaying: Replaying) -> Sampled:
        """Makes sampled calls. Raises `SamplerError`, and `PartyFailure` if a call fails."""
        call_ms = replaying.replays.ms or replaying.turn()[0].inner / 1e6
        self.sampler.mean_ns = int(min(max(call_ms * 1e6 / A_CALL, MEAN_NS[0]), MEAN_NS[1]))
        tally = Tally(self.mapped)
        wanted, calls, begin = MOMENTS, 0, time.monotonic()

        def patience() -> float:
            return MOST_SECONDS if tally.moments >= LEAST else 3 * MOST_SECONDS

        while tally.moments < wanted and calls < MOST_CALLS and (calls < LEAST_CALLS or time.monotonic() - begin < patience()):
            made = replaying.turn(self.sampler, again=not calls)
            calls += len(made)
            if self.sampler.error:
                raise SamplerError(f"the process cannot be inspected: {os.strerror(self.sampler.error)}")
            seen = within(self.sampler.seen, made)
            self.refresh(seen)
            tally.add(seen)
            if tally.moments >= wanted == MOMENTS and any(abs(tally.result().share - limit) < CLOSE for limit in LIMITS):
                wanted = 2 * MOMENTS
        return tally.result()


def within(samples: Sequence[Sample], calls: Sequence[Call]) -> list[Sample]:
    """Returns the samples that were taken during one of these calls. For single calls, returns all samples, because the sampler was open only during
    those calls."""
    spans = [call.span for call in calls]
    if None in spans:
        return list(samples)
    return [sample for sample in samples if any(span is not None and span[0] <= sample.at <= span[1] for span in spans)]


class Tally:
    """Counts every moment equally, regardless of how many threads are active in it, so shares are fractions of time, not of processors. A moment in
    which any thread runs a library's code is the library's: own code beside it may just be waiting for the library's result."""

    def __init__(self, mapped: Mapped):
        self.mapped = mapped
        self.moments = 0
        self._own: dict[Function, float] = defaultdict(float)
        self._library: dict[str, float] = defaultdict(float)

    def add(self, samples: Iterable[Sample]) -> None:
        """Adds samples whose moments share one numbering, that is, the samples from one call or from one series."""
        moments: dict[int, list[Sample]] = defaultdict(list)
        for sample in samples:
            kind = sample.kind
            if kind is Kind.UNKNOWN:  # mapped while the call was running
                mapping = self.mapped.at(sample.address)
                kind = mapping.kind if mapping is not None else Kind.LIBRARY
            if kind in (Kind.OWN, Kind.LIBRARY):
                moments[sample.moment].append(Sample(sample.moment, sample.address, kind))
        for at_work in moments.values():
            self.moments += 1
            at_work = [sample for sample in at_work if self._by_library(sample)] or at_work
            for sample in at_work:
                self._count(sample, 1 / len(at_work))

    def _by_library(self, sample: Sample) -> bool:
        function = self.mapped.function(sample.address) if sample.kind is Kind.OWN else None
        return function is None or computes(function[1])

    def _count(self, sample: Sample, weight: float) -> None:
        function = self.mapped.function(sample.address) if sample.kind is Kind.OWN else None
        if function is not None and not computes(function[1]):
            self._own[function] += weight
        elif function is not None:
            self._library[f"{function[1]} (linked into the program's library)"] += weight
        else:
            mapping = self.mapped.at(sample.address)
            name = os.path.basename(mapping.path) if mapping is not None else ""
            self._library[name if name and not name.startswith("[") else "generated code"] += weight

    def result(self) -> Sampled:
        total = float(self.moments)
        if not total:
            return Sampled(looked=True, reason="no thread was seen working in a call")
        own = {function: weight / total for function, weight in self._own.items()}
        return Sampled(own, {name: weight / total for name, weight in self._library.items()}, self.moments, looked=True)
