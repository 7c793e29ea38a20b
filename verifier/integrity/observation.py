"""The `integrity` stage in the timed process: the judge inspects some of the process's later calls and tests whether the program's own code is
needed."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from verifier.build.artefacts import Artefacts
from verifier.correctness.calling import Subject
from verifier.correctness.examining import CLONE, OVERWRITTEN, borrowed
from verifier.correctness.trials import Trials
from verifier.integrity.artefacts import libraries
from verifier.integrity.evidence import Evidence
from verifier.integrity.judging import MIXED, Observed, ask
from verifier.integrity.launches import by_library
from verifier.integrity.replays import Replaying
from verifier.integrity.sampling.glancing import Glancing
from verifier.integrity.sampling.native import SamplerError
from verifier.integrity.sampling.observing import Observing, Sampled
from verifier.integrity.sampling.patching import Patches
from verifier.integrity.shortcuts import Shortcuts
from verifier.integrity.skipping import Gone, Skipping
from verifier.integrity.timed_process import TimedProcess
from verifier.integrity.variants import Variant, without
from verifier.judge.asking import Party
from verifier.judge.party_failure import PartyFailure
from verifier.profiling.own_kernels import OwnKernels
from verifier.timing.series import Form

MOST_PROCESSES = 4  # maximum number of processes for variants that need separate processes
RING = 2  # number of calls whose outputs a program may not keep: the last output alone may wait in a variable for the next call
RECORDED = (2, 4)  # number of calls under the recorder, rounded up to whole series; the first turn repeats a timed call


@dataclass
class Observation:
    """The judge's observation of the timed process. `fresh` creates a runner. `enlist` imports the program, or a variant of it, into a runner.
    `folder` stores the compiled sampler. `call_ms` is the time of the timed call, and `form` is the form of its series."""

    timed: TimedProcess
    trials: Trials
    source: str
    artefacts: Artefacts
    fresh: Callable[[], Party]
    enlist: Callable[[Party, Variant], Subject]
    folder: Path
    call_ms: float
    rng: random.Random
    form: Form | None = None

    def look(self) -> tuple[Evidence, Observed]:
        """Makes the observation. Raises `PartyFailure`."""
        subject = Subject(self.timed.caller.party, self.timed.caller)
        party, laps, limits = subject.runner, self.timed.side.laps, self.trials.limits
        seen = Observed(busy=laps.preempted > limits.preempted * laps.made)
        cuda = party.device.kind == "cuda"
        recorded: dict[str, Any] = {}
        observing: Observing | None = None
        with party.gate.alone():
            glancing, self.timed.caller.glancing = self.timed.caller.glancing, None
            replaying = Replaying(self.timed, self.trials, self.rng, self.call_ms, self.form)
            replaying.before()
            if cuda:
                recorded = self._record(subject, replaying)
            else:
                observing, seen.sampled = self._sample(subject, replaying, glancing)
            seen.replay_ms, seen.unlike = replaying.replays.ms, replaying.differs()
            del replaying  # may take gigabytes
            first = self.trials.expectations.first
            lent = [borrowed(words) for words in first.run.aliased] if first is not None else []
            if self.timed.caller.overwritten(lent):
                seen.wrong = f"{OVERWRITTEN} (an earlier timed call's, found after all timed calls): {CLONE}"
            if (kept := self.timed.caller.outlived(lent)) >= RING:
                seen.wrong = seen.wrong or f"the program keeps the outputs of {kept} earlier calls, so that a later call can write to them: {CLONE}"
            shortcuts = Shortcuts(self.timed, self.trials, self.form, self.rng)
            shortcuts.look()
            seen.wrong, seen.shortcut = seen.wrong or shortcuts.wrong, shortcuts.said
        evidence = ask(self.trials, subject)
        try:
            evidence = Evidence.model_validate({**evidence.model_dump(), **recorded})
        except ValidationError:
            evidence = Evidence(failure="the runner's record is malformed")
        if cuda and not seen.unlike:
            self._skip_kernels(subject, evidence, seen)
        elif observing is not None and seen.sampled is not None and seen.sampled.share >= MIXED and not seen.unlike:
            self._skip(subject, observing, seen, seen.sampled)
        return evidence, seen

    def _record(self, subject: Subject, replaying: Replaying) -> dict[str, Any]:
        """Makes turns of the timed form while the recorder is on, and one turn afterwards, so that the end of recording reveals nothing either."""
        runner, limit = subject.runner, self.trials.limits.call * 3
        runner.ask("record", {"on": True}, limit)
        made, wanted = 0, 1 if replaying.slow else self.rng.randint(*RECORDED)
        while made < wanted:
            made += len(replaying.turn(again=not made, recorded=True))
        answer = runner.ask("record", {"on": False}, limit).message.get("evidence")
        replaying.turn(again=True)
        return answer if isinstance(answer, dict) else {"failure": "the runner's record is malformed"}

    def _sample(self, subject: Subject, replaying: Replaying, glancing: Glancing | None) -> tuple[Observing | None, Sampled]:
        try:
            observing = self._look_into(subject)
            sampled = observing.look(replaying)
            sampled.timed = glancing.result() if glancing is not None else None
            return observing, sampled
        except SamplerError as error:
            return None, Sampled(reason=str(error))

    def _look_into(self, subject: Subject) -> Observing:
        return Observing(subject.runner, self.artefacts, self.folder, self.rng.getrandbits(63))

    def _skip(self, subject: Subject, observing: Observing, seen: Observed, sampled: Sampled) -> None:
        patches = Patches(subject, observing, self._again, self._look_into)
        shares = {patches.name(function): share for function, share in sampled.own.items()}
        skipping = Skipping(self.trials, patches.subject, patches.patch, self.rng, self.call_ms)
        try:
            seen.needless = skipping.look(shares)
        except SamplerError as error:
            seen.needless, seen.unskipped = skipping.needless, str(error)

    def _skip_kernels(self, subject: Subject, evidence: Evidence, seen: Observed) -> None:
        """Skips kernels in another process, because GPU code cannot be changed from outside. The process imports the program again for each group of
        kernels."""
        own = OwnKernels.of(self.source, [symbol for library in libraries(self.artefacts.index, self.artefacts.data) for symbol in library.kernels])
        total, shares, names = sum(kernel.ms for kernel in evidence.kernels), dict[str, float](), dict[str, list[str]]()
        for kernel in evidence.kernels:
            if own.owns(kernel.name) and not by_library(kernel.via) and total:
                short = own.short(kernel.name)
                shares[short] = shares.get(short, 0.0) + kernel.ms / total
                names.setdefault(short, []).append(kernel.name)
        if sum(shares.values()) < MIXED:
            return
        untried: list[str] = []
        others: list[Party] = []

        @contextlib.contextmanager
        def patch(wanted: list[str]) -> Iterator[Subject]:
            variant = without(wanted, self.source, self.artefacts)
            other = None
            if variant is not None:
                with contextlib.suppress(PartyFailure):
                    other = self._variant(others, variant)
            if other is None:
                untried.extend(wanted)
                raise Gone
            yield other

        skipping = Skipping(self.trials, lambda: subject, patch, self.rng, self.call_ms)
        seen.needless = [name for short in skipping.look(shares) for name in names[short]]
        if untried:
            seen.unskipped = f"{', '.join(sorted(set(untried))[:6])}: neither its machine code nor its source could be changed"

    def _variant(self, processes: list[Party], variant: Variant) -> Subject:
        """Imports the variant into the most recent process. Starts a fresh process instead if that process is gone or cannot import a second program,
        because the first may have registered operators permanently. Raises `Gone`."""
        if processes and processes[-1].alive:
            with contextlib.suppress(PartyFailure):
                return self.enlist(processes[-1], variant)
        if len(processes) == MOST_PROCESSES:
            raise Gone
        processes.append(self.fresh())
        return self.enlist(processes[-1], variant)

    def _again(self) -> Subject:
        subject = self.enlist(self.fresh(), Variant(self.source, self.artefacts))
        self.trials.reconstruct(subject, stay=False)
        return subject
