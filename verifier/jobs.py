"""Jobs for a verifier, and their results. JSON on the wire; `docs/reference` publishes the schema."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from verifier.choices import SanitizerTool as SanitizerTool
from verifier.choices import Section as Section
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
    backward: bool = False  # check the gradients of inputs and parameters as well, and measure forward and backward, for program and baselines alike
    seed: int | None = None  # null: drawn secretly; set only to repeat a measurement
    rival_source: str | None = None  # another program that passed, timed in turn with this one; baselines other than eager are then left out


class ProfileJob(_Job):
    """A timeline of a few calls of the program, or of the reference where `program_source` is null."""

    kind: Literal["profile"] = "profile"
    program_source: str | None = None
    iterations: int = 5
    counters: bool = False  # also take hardware counters of the longest kernels, by Nsight Compute
    sections: list[Section] = []  # sections of counters; empty: all


class SanitizeJob(_Job):
    """Runs one or two calls of the program, or of the reference where `program_source` is null, under tools that find wrong accesses and races."""

    kind: Literal["sanitize"] = "sanitize"
    program_source: str | None = None
    tools: list[SanitizerTool] = []  # empty: all that the device has
    calls: int = Field(default=1, ge=1, le=2)


class CalibrateJob(BaseModel):
    """How much processes of the same code differ on this host; the verifier keeps it and widens later intervals by it."""

    kind: Literal["calibrate"] = "calibrate"
    seconds: float = 6  # seconds of timed calls for each of its tasks


Job = Annotated[AdmitJob | CaptureJob | VerifyJob | ProfileJob | SanitizeJob | CalibrateJob, Field(discriminator="kind")]


class KernelProfile(BaseModel):
    """Digest of one kernel over the profiled calls. Times are in microseconds; metrics keep their profiler's own names, in ns, bytes, Hz and per
    cent."""

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
    occupancy: float | None = None  # achieved occupancy: measured share of the warps that the device can hold
    occupancy_possible: float | None = None  # theoretical occupancy, for its registers, shared memory and block size
    occupancy_limit: str = ""  # what limits it: "registers", "shared memory", "warps", "blocks"
    stalls: dict[str, float] = {}  # share of a warp's time by stall reason ("selected": it issues), largest first
    resources: dict[str, int | float | str] = {}  # from the compiled code: registers, spills, instruction mix; own kernels only


class Roofline(BaseModel):
    """The least time that the device needs for the task's bytes and operations: computed, not measured."""

    bytes: int | None = None
    flops: int | None = None
    memory_ms: float | None = None
    compute_ms: float | None = None
    bound: Literal["memory", "compute"] | None = None
    ceilings: str = ""  # where bandwidth and rate come from


class Moved(BaseModel):
    """Copies of one direction, or fills."""

    count: float = 0.0
    us: float = 0.0
    bytes: float = 0.0


class HostCalls(BaseModel):
    """What the host side of a program does in one call. Times are in microseconds."""

    waits: float = 0.0  # waits of the program for the device
    wait_us: float = 0.0
    allocations: float = 0.0  # by the driver, both ways
    allocation_us: float = 0.0
    copies: dict[str, Moved] = {}  # "HtoD", "DtoH", "DtoD"
    fills: Moved = Moved()
    streams: int = 0  # streams on which kernels ran
    device_us: float = 0.0  # time in which anything ran on the device
    kernel_us: float = 0.0  # sum over kernels: more than `device_us` where they overlap
    begin_us: float = 0.0  # time until the first work on the device
    gap_us: float | None = None  # idle time of the device between its first and its last work; null in old records
    after_us: float | None = None  # time from the end of the last work to the end of the call


class Profile(BaseModel):
    """The result of the job `profile` beside the timeline's bytes (`profiling/timeline.py`)."""

    task: str
    program: str | None
    tool: Literal["nsys", "cupti", "torch-profiler"]
    tool_version: str = ""
    fallback_reason: str = ""  # why not nsys, where it was not
    iterations: int
    wall_us_per_iteration: float
    device_busy: float | None = None  # share of the iterations' time in which the device worked
    launches_per_iteration: float | None = None
    gap_us_p50: float | None = None
    kernels: list[KernelProfile] = []
    counters_tool: Literal["ncu", ""] = ""
    counters_version: str = ""
    counters_reason: str = ""  # why there are no counters, or for which kernels they are missing
    roofline: Roofline | None = None
    host: HostCalls | None = None  # null where the tool saw no calls of the CUDA interface
    protection: Protection | None = None
    warnings: list[str] = []


class Fault(BaseModel):
    """One finding of a sanitizer; equal ones are counted. It never holds a path or an address of the host."""

    tool: SanitizerTool
    kind: str  # "out of bounds", "misaligned", "uninitialized read", "race", "barrier", "leak", "undefined behaviour", "error"
    message: str
    kernel: str = ""
    thread: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    access: str = ""  # "write of 4 bytes to global memory"
    line: int | None = None  # of the kernel's source text, where it was compiled with -lineinfo or -g
    count: int = 1


class Sanitized(BaseModel):
    """The result of the job `sanitize`: findings by tool, and which tools did not run and why."""

    task: str
    program: str | None
    tool_version: str = ""
    ran: list[SanitizerTool] = []
    missing: dict[str, str] = {}  # tool: why it did not run
    faults: list[Fault] = []
    seconds: float = 0.0
    protection: Protection | None = None
    warnings: list[str] = []

    @property
    def clean(self) -> bool:
        return bool(self.ran) and not self.faults


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
    sanitized: Sanitized | None = None
    calibration: dict[str, Any] | None = None
    error: str = ""
    timeline: bytes | None = Field(default=None, exclude=True)  # travels as raw bytes beside the JSON
