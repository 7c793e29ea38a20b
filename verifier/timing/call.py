"""One timed call, as the judge saw it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from verifier.correctness.fingerprint import Fingerprint
from verifier.layout import Spec

if TYPE_CHECKING:
    from verifier.timing.series import Use

PREEMPTED, PREEMPTED_NS = 0.1, 100_000  # share of a call that its threads may wait for a processor, and the most that waking them takes
POISON = 0xA5  # value of every byte of the outputs' memory before a call


@dataclass
class Call:
    """One timed call, in nanoseconds."""

    inner: int  # by the shim
    wall: int  # by the judge
    copied: int  # from the end of the interval until the outputs were in the judge's memory
    ahead: int  # from the writing of the inputs until the interval began
    tree: object
    specs: list[Spec]
    outputs: list[torch.Tensor]  # private copies; a baseline's outputs of gigabytes stay where its next call will write
    again: list[torch.Tensor | Fingerprint] | None  # outputs of the previous call, read once more; see `kept`
    inputs_intact: list[bool]
    shared: list[str] = field(default_factory=list)  # owner of each output's memory, by the party's word
    laid: bool = False  # whether outputs had to be copied to the task's layout, by the party's word
    between: int = 0  # in a series: from the previous outputs' copy until the party waited for this call
    around: int = 0  # from the request until its inputs could be handed over; in a series its part of that, and of what follows the last call
    lead: int = 0  # in a series: its part of what the lead-in calls took longer than the others
    in_series: bool = False
    use: Use | None = None  # in a series: the inputs
    span: tuple[int, int] | None = None  # in a series: its beginning and end by the judge's clock
    looked: bool = False  # whether the judge inspected the process meanwhile, which took some of its time
    queued: int = 0  # how long its threads waited for a processor meanwhile

    @property
    def warm(self) -> bool:
        return self.use is not None and self.use.warm

    @property
    def preempted(self) -> bool:
        """Whether other work on the host had the processors while it ran: then its time says nothing about the program."""
        return self.queued > max(PREEMPTED * self.inner, PREEMPTED_NS)
