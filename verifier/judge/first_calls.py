"""Limits the time of calls in which torch.compile or Triton's autotuner may compile a program.

A program whose source refers to one of them may take as long for such a call as a compiled baseline takes (`Limits.compile_baseline`): an autotuner
compiles and times dozens of configurations in its first call. These calls are never timed, and other judges may measure while they last. The
reference may be in a branch that never runs. Such a reference gains the program only this extra time, which is bounded. All first calls of a process
share one limit, and all processes of an evaluation share `ALL_TOGETHER` times that limit; calls that overlap in time count once. All other
calls keep `Limits.call`.
"""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING

from verifier.integrity.static import calls_method, refers_to
from verifier.judge.party_failure import PartyFailure
from verifier.source import SourceError, parse

if TYPE_CHECKING:
    from verifier.judge.asking import Party
    from verifier.judge.pool import Pool
    from verifier.timing.blocks import Caller

AUTOTUNER = "triton.autotune"
COMPILERS = ("torch.compile", AUTOTUNER)
METHOD = "Module.compile"
ALL_TOGETHER = 3  # the trials, the timed processes, and once more for further pairs, further rounds or a repeat


class FirstCalls:
    """The first calls of one program in one evaluation. `compiles` indicates whether they may take longer than other calls."""

    def __init__(self, pool: Pool, source: str):
        self.pool = pool
        self.compilers: list[str] = []
        with contextlib.suppress(SourceError):  # a source that cannot be read is never called
            tree = parse(source)
            self.compilers = [name for name in COMPILERS if refers_to(tree, name)]
            if calls_method(tree, "compile"):
                self.compilers.append(METHOD)
        self._of: weakref.WeakKeyDictionary[Party, float] = weakref.WeakKeyDictionary()  # seconds of each process
        self._seconds = 0.0  # seconds during which any process made such a call
        self._running, self._since = 0, 0.0
        self._lock = threading.Lock()  # processes start in parallel

    @property
    def compiles(self) -> bool:
        return bool(self.compilers)

    @property
    def tunes(self) -> bool:
        return AUTOTUNER in self.compilers

    @contextlib.contextmanager
    def longer(self, caller: Caller) -> Iterator[None]:
        """While open, a call may use all the time that is left for first calls, and another judge may freeze it. Changes nothing if the program
        does not compile."""
        if not self.compiles:
            yield
            return
        usual, begin = caller.limit, self._begin()
        caller.limit = max(usual, self.left(caller.party))
        try:
            with self.pool.gate.idle():
                yield
        except PartyFailure as failure:
            if failure.kind == "timed_out":
                failure.message += f" in a call in which {' or '.join(self.compilers)} may compile"
            raise
        finally:
            caller.limit = usual
            self._end(caller.party, begin)

    def left(self, party: Party) -> float:
        """Returns the seconds that are left for first calls of this process."""
        most = self.pool.limits.compile_baseline
        with self._lock:
            spent = self._seconds + (self._now() - self._since if self._running else 0.0)
            return max(min(most - self._of.get(party, 0.0), ALL_TOGETHER * most - spent), 0.0)

    def _now(self) -> float:
        return time.monotonic() - self.pool.gate.frozen_seconds()

    def _begin(self) -> float:
        with self._lock:
            now = self._now()
            if not self._running:
                self._since = now
            self._running += 1
            return now

    def _end(self, party: Party, begin: float) -> None:
        with self._lock:
            now = self._now()
            self._of[party] = self._of.get(party, 0.0) + now - begin
            self._running -= 1
            if not self._running:
                self._seconds += now - self._since
