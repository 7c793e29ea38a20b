"""A judge for one job, a command line's: it was read, and its parties were started, before the judge was there."""

from __future__ import annotations

from verifier.judge.judge import Judge


def answer(judge: Judge) -> None:
    """Does the job, whose parties are coming up already, and ends."""
    judge.inbox.begin()
    judge.ready({})
    frame = judge.inbox.next()
    if frame is not None:
        judge.answer(frame, judge.result(frame))
        judge.device.rest()
    judge.close()
