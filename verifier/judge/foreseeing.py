"""Starts a task's capture while the task is still being admitted.

The capture has a process of its own in any case. While another process examines the task, this one imports the exporter and the task's libraries.
It takes its role, and with it the device, only after the task has been admitted, so it changes neither the memory nor the times that the admission
finds.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from verifier.jobs import AdmitJob, CaptureJob, Job
from verifier.judge.asking import Party
from verifier.judge.party_failure import PartyFailure
from verifier.judge.pool import Coming, Pool


class Foreseen:
    """The process of the capture that follows an admission. All methods are for the judge's own thread, because a party dies with the thread that
    spawned it."""

    def __init__(self, pool: Pool, job: AdmitJob):
        self.pool = pool
        self.job = job
        self.party: Party | None = None
        self._failure: PartyFailure | None = None
        self._thread: threading.Thread | None = None
        self._coming: Coming | None = None

    def begin(self) -> None:
        """Takes a party from the pool, and lets it import in a separate thread. Raises `Cancelled` and `OSError`."""
        self.party = self.pool.unassigned()
        self._thread = threading.Thread(target=self._import, args=[self.party], daemon=True)
        self._thread.start()

    @contextlib.contextmanager
    def still(self) -> Iterator[None]:
        """Freezes the process while the judge measures."""
        assert self.party is not None
        self.party.spawned.freeze()
        try:
            yield
        finally:
            self.party.spawned.thaw()

    def admitted(self) -> None:
        """Lets the process take its role as soon as it has imported everything."""
        assert self.party is not None
        self._coming = Coming(self.party, ("reference", self.job.precision, self.job.mode), first=self._imported)

    def use_for(self, job: Job) -> None:
        """Hands the process over if this job is the capture: the next `take` returns it, or a fresh one if it has failed. Otherwise, ends it."""
        if isinstance(job, CaptureJob) and self._coming is not None and _of(job) == _of(self.job):
            self.pool.expect(self._coming)
        else:
            self.end()

    def end(self) -> None:
        """Kills the process if it has begun."""
        if self.party is not None:
            self.pool.dismiss(self.party)

    # Code that runs in other threads

    def _import(self, party: Party) -> None:
        try:
            party.foresee(self.job.task_source)
        except PartyFailure as failure:
            self._failure = failure

    def _imported(self) -> None:
        assert self._thread is not None
        self._thread.join()
        if self._failure is not None:
            raise self._failure


def _of(job: AdmitJob | CaptureJob) -> tuple[str, str, str]:
    return job.task_source, job.precision, job.mode
