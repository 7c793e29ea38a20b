"""On the CPU: makes functions of a running process return immediately, by modifying its code from outside."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Callable, Iterator

from verifier.correctness.calling import Subject
from verifier.integrity.sampling.native import RETURN
from verifier.integrity.sampling.observing import Function, Observing, key


class Patches:
    """Patches functions of a process. `fresh` creates another process that has imported the program, if the first process has not survived.
    `observing` inspects a process."""

    def __init__(self, subject: Subject, observing: Observing, fresh: Callable[[], Subject], look_into: Callable[[Subject], Observing]):
        self._subject = subject
        self._observing = observing
        self._fresh = fresh
        self._look_into = look_into
        self.functions: dict[str, Function] = {}

    def name(self, function: Function) -> str:
        """Returns the name that `patch` uses for a function."""
        name = key(*function)
        self.functions[name] = function
        return name

    def subject(self) -> Subject:
        if not self._subject.runner.alive:
            self._subject = self._fresh()
            self._observing = self._look_into(self._subject)
        return self._subject

    @contextlib.contextmanager
    def patch(self, names: list[str]) -> Iterator[Subject]:
        """Patches functions. Raises `SamplerError` if the process cannot be written to."""
        mapped, sampler, code = self._observing.mapped, self._observing.sampler, RETURN[platform.machine()]
        entries: set[int] = set()
        for library, wanted in [self.functions[name] for name in names]:
            # If the library has no name for the function, all exported functions of the library are patched. mypy infers no lambda with a default.
            entries |= set(mapped.entries(library, lambda name, wanted=wanted: not wanted or name == wanted))  # type: ignore[misc]  # as said
        before: dict[int, bytes] = {}
        try:
            for entry in entries:
                before[entry] = sampler.write(entry, code)
            yield self._subject
        finally:
            if self._subject.runner.alive:
                for entry, bytes_ in before.items():
                    sampler.write(entry, bytes_)
