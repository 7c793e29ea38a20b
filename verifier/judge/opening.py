"""Work started for a judge's only job while the judge itself was still importing."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from verifier.build.raw_build import RawBuild
from verifier.channel import Frame

if TYPE_CHECKING:  # pydantic is imported later
    from verifier.report import Stage


@dataclass
class Opening:
    """Work started for a judge's only job, with timestamps in seconds since its client started."""

    begun: float  # time.monotonic() at the client's start
    frame: Frame
    raw: RawBuild | None = None
    marks: list[tuple[str, float]] = field(default_factory=list)

    def mark(self, what: str) -> None:
        self.marks.append((what, time.monotonic() - self.begun))

    def stage(self) -> Stage:
        """Returns the stage that lasts from the client's first line until the first stage of the job."""
        from verifier.report import Stage  # imports pydantic, for which the first steps of a start do not wait

        detail = ", ".join(f"{what} at {seconds:.2f}" for what, seconds in self.marks)
        return Stage(name="startup", status="passed", seconds=round(time.monotonic() - self.begun, 4), detail=detail)
