"""The stage `integrity` with the process that was timed: its further calls, at some of which the judge looks, and what its own code is needed for."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from verifier.build.artefacts import Artefacts
from verifier.correctness.trials import Subject, Trials
from verifier.integrity.evidence import Evidence
from verifier.integrity.judging import MIXED, Observed, ask
from verifier.integrity.replays import Replaying
from verifier.integrity.sampling.native import SamplerError
from verifier.integrity.sampling.observing import Observing, Sampled
from verifier.integrity.sampling.patching import Patches
from verifier.integrity.skipping import Skipping
from verifier.integrity.timed_process import TimedProcess

RECORDED = (2, 4)  # calls under the recorder; the first of them makes a timed one again


@dataclass
class Observation:
    """`fresh` makes a runner with the program imported; `folder` keeps the compiled sampler; `call_ms` is the timed call."""

    timed: TimedProcess
    trials: Trials
    artefacts: Artefacts
    fresh: Callable[[], Subject]
    folder: Path
    call_ms: float
    rng: random.Random

    def look(self) -> tuple[Evidence, Observed]:
        """Raises `PartyFailure`."""
        subject = Subject(self.timed.caller.party, self.timed.caller)
        party, seen = subject.runner, Observed()
        cuda = party.device.kind == "cuda"
        recorded: dict[str, Any] = {}
        observing: Observing | None = None
        with party.gate.alone():
            replaying = Replaying(self.timed, self.trials, self.rng, self.call_ms)
            replaying.before()
            if cuda:
                recorded = self._record(subject, replaying)
            else:
                observing, seen.sampled = self._sample(subject, replaying)
            seen.replay_ms, seen.unlike = replaying.replays.ms, replaying.differs()
            del replaying  # gigabytes, perhaps
        evidence = ask(self.trials, subject)
        try:
            evidence = Evidence.model_validate({**evidence.model_dump(), **recorded})
        except ValidationError:
            evidence = Evidence(failure="the runner's record is malformed")
        if observing is not None and seen.sampled is not None and seen.sampled.share >= MIXED and not seen.unlike:
            self._skip(subject, observing, seen, seen.sampled)
        return evidence, seen

    def _record(self, subject: Subject, replaying: Replaying) -> dict[str, Any]:
        """Calls of the timed form while the recorder is on; and some after it, so that its end is nobody's sign either."""
        runner, limit = subject.runner, self.trials.limits.call * 3
        runner.ask("record", {"on": True}, limit)
        for number in range(1 if replaying.slow else self.rng.randint(*RECORDED)):
            replaying.call(again=not number)
        answer = runner.ask("record", {"on": False}, limit).message.get("evidence")
        replaying.call(again=True)
        return answer if isinstance(answer, dict) else {"failure": "the runner's record is malformed"}

    def _sample(self, subject: Subject, replaying: Replaying) -> tuple[Observing | None, Sampled]:
        try:
            observing = self._look_into(subject)
            return observing, observing.look(replaying)
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

    def _again(self) -> Subject:
        subject = self.fresh()
        self.trials.reconstruct(subject, stay=False)
        return subject
