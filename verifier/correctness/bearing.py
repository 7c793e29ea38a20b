"""Determines how widely each input of a task can vary on its own.

Some inputs have a domain, such as a probability or the argument of a logarithm. If all inputs were restricted to the narrowest domain, an input that
accompanies a probability, such as a mask of ones or a gain that is never negative, would not vary, and a program would not have to read it.
"""

from __future__ import annotations

from verifier.correctness.expectation import Expectations, Skipped
from verifier.correctness.inputs import DISTRIBUTIONS, EACH, Domain, domains
from verifier.judge.memory import large
from verifier.judge.party_failure import PartyFailure
from verifier.judge.session import ReferenceSession

PROBE = DISTRIBUTIONS[0]
PART = 4  # divisor: at most a quarter of the trials' time is spent on this, without new processes
LOST = 8  # number of processes that may be lost to inputs for which a kernel of the task stops at an assertion


def borne_alone(reference: ReferenceSession, expectations: Expectations, seed: int) -> tuple[list[Domain | None], bool]:
    """Returns, for each input, the widest domain that the task accepts if only this input varies; null if it accepts none or if time has run out. The
    list is empty if the inputs take up gigabytes. Also returns whether the reference is back in its constructed state because another process took
    over; otherwise, its state is unchanged."""
    begin, lost_seconds, losses = reference.clock(), 0.0, 0
    own = reference.inputs(seed)
    if large(own.nbytes):
        return [], False
    found: list[Domain | None] = []
    candidates = [domains([tensor]) if tensor.numel() and index < EACH else [] for index, tensor in enumerate(own.tensors)]
    for index, widths in enumerate(candidates):
        chosen = None
        for domain in widths:
            since = reference.clock()
            if since - begin - lost_seconds > reference.limits.correctness / PART or losses == LOST:
                break
            borne, lost = _bears(reference, expectations, index, domain, seed)
            if lost:
                losses, lost_seconds = losses + 1, lost_seconds + reference.clock() - since
            if borne:
                chosen = domain
                break
        found.append(chosen)
    return found, losses > 0


def _bears(reference: ReferenceSession, expectations: Expectations, index: int, domain: Domain, seed: int) -> tuple[bool, bool]:
    """Returns whether the task accepts such values for one input, and whether another process has taken over."""
    own = reference.inputs(seed)
    values = reference.reshaped(own, PROBE, [domain if at == index else None for at in range(len(own.tensors))], seed)
    if values is None:
        return False, False
    before = reference.exact
    try:
        expectations.expect(values, seed, strict=False)
    except Skipped as skipped:
        reference.exact = None if skipped.anew else before
        return False, skipped.anew
    except PartyFailure as failure:
        if failure.whose != "reference" or not reference.outlive():
            raise
        return False, True
    reference.rollback()
    reference.exact = before
    return True, False
