"""One timed call, as the judge observed it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from verifier.correctness.fingerprint import Fingerprint
from verifier.layout import Spec

if TYPE_CHECKING:
    from verifier.timing.series import Use

PREEMPTED, PREEMPTED_NS = 0.1, 100_000  # share of a call that one of its threads may wait for a processor; maximum wake-up time of threads
POISON = 0xA5  # initial value of every byte of the output memory before a call


@dataclass
class Call:
    """One timed call, in nanoseconds."""

    inner: int  # measured by the shim
    wall: int  # measured by the judge
    copied: int  # from the end of the interval until the outputs were in the judge's memory
    ahead: int  # from the writing of the inputs until the interval began
    tree: object
    specs: list[Spec]
    outputs: list[torch.Tensor]  # private copies; if a baseline's outputs take up gigabytes, they stay where its next call will write
    again: list[torch.Tensor | Fingerprint] | None  # outputs of the previous call, read once more; see `kept`
    inputs_intact: list[bool]
    shared: list[str] = field(default_factory=list)  # owner of each output's memory, as reported by the party
    laid: bool = False  # whether outputs had to be copied to the task's layout, as reported by the party
    between: int = 0  # in a series: from copying the previous outputs until the party waited for this call
    around: int = 0  # from the request until inputs could be handed over; in a series: its share of that, and of the time after the last call
    lead: int = 0  # in a series: its share of the time by which lead-in calls exceed the others
    in_series: bool = False
    use: Use | None = None  # in a series: the inputs
    span: tuple[int, int] | None = None  # in a series: its beginning and end by the judge's clock
    looked: bool = False  # whether the judge inspected the process during the call, which took up some of the call's time
    queued: int = 0  # longest time that one of its threads waited for a processor during the call
    after: dict[int, torch.Tensor] = field(default_factory=dict)  # inputs that the call has changed, by number, unless they take up gigabytes

    @property
    def warm(self) -> bool:
        return self.use is not None and self.use.warm

    @property
    def preempted(self) -> bool:
        """Returns whether other work on the host preempted the call, in which case its time says nothing about the program."""
        return self.queued > max(PREEMPTED * self.inner, PREEMPTED_NS)
