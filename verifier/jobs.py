"""What can be asked of a verifier, and what comes back. JSON on the wire; `docs/reference` publishes the schema."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from verifier.graph import Capture
from verifier.report import Protection, Report, Tier
from verifier.task import Admission, Mode, Precision


class _Job(BaseModel):
    task_source: str
    precision: Precision = "fp32-strict"
    mode: Mode = "train"  # KernelBench never calls eval(); it is the task author's mode


class AdmitJob(_Job):
    kind: Literal["admit"] = "admit"


class CaptureJob(_Job):
    kind: Literal["capture"] = "capture"


class VerifyJob(_Job):
    kind: Literal["verify"] = "verify"
    program_source: str
    tier: Tier = "quick"
    seed: int | None = None  # null: drawn secretly; given only to repeat a measurement


class ProfileJob(_Job):
    """A timeline of a few calls of the program, or of the reference where `program_source` is null."""

    kind: Literal["profile"] = "profile"
    program_source: str | None = None
    iterations: int = 5


Job = Annotated[AdmitJob | CaptureJob | VerifyJob | ProfileJob, Field(discriminator="kind")]


class KernelProfile(BaseModel):
    """Digest of one kernel over the profiled calls. Times in microseconds; metrics by their profiler's own names."""

    name: str
    own: bool
    calls: int
    total_us: float
    mean_us: float
    share: float
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    registers: int | None = None
    shared_bytes: int | None = None
    metrics: dict[str, float] = {}


class Profile(BaseModel):
    """What the job `profile` returns beside the timeline's bytes (`profiling/timeline.py`)."""

    task: str
    program: str | None
    tool: Literal["nsys", "cupti", "torch-profiler"]
    tool_version: str = ""
    fallback_reason: str = ""  # why not nsys, where it was not
    iterations: int
    wall_us_per_iteration: float
    device_busy: float | None = None  # share of the iterations in which the device worked
    launches_per_iteration: float | None = None
    gap_us_p50: float | None = None
    kernels: list[KernelProfile] = []
    protection: Protection | None = None
    warnings: list[str] = []


class StageEvent(BaseModel):
    """Progress of a job while it runs."""

    stage: str
    status: Literal["started", "passed", "failed", "skipped", "progress"]
    seconds: float | None = None
    detail: str = ""


class JobResult(BaseModel):
    """Exactly one of the results is set, or `error`: the host's fault, never the program's."""

    admission: Admission | None = None
    capture: Capture | None = None
    report: Report | None = None
    profile: Profile | None = None
    error: str = ""
    timeline: bytes | None = Field(default=None, exclude=True)  # travels as raw bytes beside the JSON
