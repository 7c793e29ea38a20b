"""A judge for a single job started from the command line. The job was read, and its parties were started, before the judge existed."""

from __future__ import annotations

from verifier.judge.judge import Judge


def answer(judge: Judge) -> None:
    """Runs the job, whose parties are already starting, and then exits."""
    judge.inbox.begin()
    judge.ready({})
    frame = judge.inbox.next()
    if frame is not None:
        judge.answer(frame, judge.result(frame))
        judge.device.rest()
    judge.close()
