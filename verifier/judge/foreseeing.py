"""Starts a task's capture while the task is still being admitted.

The capture has a separate process in any case. While another process examines the task, this one imports the task's libraries and, unless it did so
while the judge was idle, the exporter.
It takes its role, and with it the device, only after the task has been admitted, so it does not affect the memory or the times that the admission
measures.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from verifier.jobs import AdmitJob, CaptureJob, Job
from verifier.judge.pool import Coming, Importing, Pool


class Foreseen:
    """The process of the capture that follows an admission. All methods are for the judge's own thread, because a party dies with the thread that
    spawned it."""

    def __init__(self, pool: Pool, job: AdmitJob):
        self.pool = pool
        self.job = job
        self._importing: Importing | None = None
        self._coming: Coming | None = None

    def begin(self) -> None:
        """Takes a party from the pool, which begins to import. Raises `Cancelled` and `OSError`."""
        self._importing = self.pool.importing(self.job.task_source)

    @contextlib.contextmanager
    def still(self) -> Iterator[None]:
        """Freezes the process while the judge measures."""
        assert self._importing is not None
        spawned = self._importing.party.spawned
        spawned.freeze()
        try:
            yield
        finally:
            spawned.thaw()

    def admitted(self) -> None:
        """Lets the process take its role as soon as it has imported everything."""
        assert self._importing is not None
        self._coming = Coming(self._importing.party, ("reference", self.job.precision, self.job.mode), first=self._importing.arrive)

    def use_for(self, job: Job) -> None:
        """Hands the process over if this job is the capture: the next `take` returns it, or a fresh one if it has failed. Otherwise, ends it."""
        if isinstance(job, CaptureJob) and self._coming is not None and _of(job) == _of(self.job):
            self.pool.expect(self._coming)
        else:
            self.end()

    def end(self) -> None:
        """Kills the process if it has started."""
        if self._importing is not None:
            self.pool.dismiss(self._importing.party)


def _of(job: AdmitJob | CaptureJob) -> tuple[str, str, str]:
    return job.task_source, job.precision, job.mode
