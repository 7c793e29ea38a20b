"""Stops a party while another judge measures, if the host's other work is allowed to continue (STITCH_STILL=device)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verifier.confinement.spawned import MainProcess
from verifier.judge.gate import Freezable

if TYPE_CHECKING:
    from verifier.judge.asking import Party


class Still:
    """A party that could use the device, as seen by `Gate`. If a party has no role, or is a baseline that is compiling, it has returned its permit,
    and it is enough to take that permit. Otherwise, a baseline's interpreter is stopped, but torch.compile's helper processes, which never see the
    device, continue. Any other party is stopped as a whole because it runs a program or is about to, so its permit proves nothing."""

    def __init__(self, party: Party):
        self.party = party
        self._main = MainProcess(party.spawned)
        self._taken = False
        self._stopped: Freezable | None = None

    def freeze(self) -> None:
        party = self.party
        if party.permit is not None and party.role in ("", "baseline"):
            self._taken = party.permit.take_now()
        if not self._taken:
            self._stopped = self._main if party.role == "baseline" else party.spawned
            self._stopped.freeze()

    def thaw(self) -> None:
        if self._taken:
            self._taken = False
            if self.party.permit is not None:
                self.party.permit.put()
        elif self._stopped is not None:
            self._stopped.thaw()
            self._stopped = None
