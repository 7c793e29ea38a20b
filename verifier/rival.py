"""The other program of a job that measures two against each other: what fails there says nothing about the one that is measured."""

from __future__ import annotations

from verifier.party_failure import PartyFailure
from verifier.session import Values
from verifier.timing import Call, Caller


class RivalCaller(Caller):
    """A rival that fails in a timed call is not the program's fault."""

    def call(self, values: Values, rng: int, flush: bool = True, fresh_address: bool = True, reread: bool = False) -> Call:
        try:
            return super().call(values, rng, flush, fresh_address, reread)
        except PartyFailure as failure:
            raise of_rival(failure) from None


def of_rival(failure: PartyFailure) -> PartyFailure:
    """Said of the rival: `Evaluation` then ends without a verdict on the program."""
    failure.request, failure.message = "rival", f"the program that it is timed against failed: {failure.message}"
    return failure
