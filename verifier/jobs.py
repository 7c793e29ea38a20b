"""Jobs for a verifier, and their results. They are JSON on the wire; `docs/reference` publishes the schema."""

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
    mode: Mode = "train"  # KernelBench never calls eval(), so the mode is left to the task's author


class AdmitJob(_Job):
    kind: Literal["admit"] = "admit"
    capture_follows: bool = False  # the client's next job captures this task, so the capture's process starts while the task is examined


class CaptureJob(_Job):
    kind: Literal["capture"] = "capture"


class VerifyJob(_Job):
    kind: Literal["verify"] = "verify"
    program_source: str
    tier: Tier = "quick"
    backward: bool = False  # also check the gradients of inputs and parameters, and time forward plus backward for the program and its baselines
    seed: int | None = None  # null means drawn secretly; set it only to repeat a measurement
    rival_source: str | None = None  # another program that passed, timed alternately with this one; baselines other than eager are then skipped


class ProfileJob(_Job):
    """Records a timeline of a few calls of the program, or of the reference if `program_source` is null."""

    kind: Literal["profile"] = "profile"
    program_source: str | None = None
    iterations: int = 5
    counters: bool = False  # also collect hardware counters for the longest kernels with Nsight Compute
    sections: list[Section] = []  # counter sections; empty: all


class SanitizeJob(_Job):
    """Runs one or two calls of the program, or of the reference if `program_source` is null, under tools that find invalid accesses and races."""

    kind: Literal["sanitize"] = "sanitize"
    program_source: str | None = None
    tools: list[SanitizerTool] = []  # if empty, all tools that the device supports
    calls: int = Field(default=1, ge=1, le=2)


class CalibrateJob(BaseModel):
    """Measures how much processes that run the same code differ on this host. The verifier stores the result and uses it to widen later intervals."""

    kind: Literal["calibrate"] = "calibrate"
    seconds: float = 6  # seconds of timed calls for each calibration task


Job = Annotated[AdmitJob | CaptureJob | VerifyJob | ProfileJob | SanitizeJob | CalibrateJob, Field(discriminator="kind")]


class KernelProfile(BaseModel):
    """A summary of one kernel over the profiled calls. Times are in microseconds. Metrics keep their profiler's names and are in ns, bytes, Hz, or
    per cent."""

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
    occupancy: float | None = None  # achieved occupancy: measured share of the device's maximum resident warps
    occupancy_possible: float | None = None  # theoretical occupancy, given the kernel's registers, shared memory and block size
    occupancy_limit: str = ""  # the resource that limits occupancy: "registers", "shared memory", "warps", "blocks"
    stalls: dict[str, float] = {}  # share of a warp's time by stall reason, in descending order ("selected" means that it issues an instruction)
    resources: dict[str, int | float | str] = {}  # from the compiled code: registers, spills, instruction mix; only for the program's own kernels


class Roofline(BaseModel):
    """The minimum time that the device needs for the task's bytes and operations. It is computed, not measured."""

    bytes: int | None = None
    flops: int | None = None
    memory_ms: float | None = None
    compute_ms: float | None = None
    bound: Literal["memory", "compute"] | None = None
    ceilings: str = ""  # source of the bandwidth and rate ceilings


class Moved(BaseModel):
    """Copies in one direction, or fill operations."""

    count: float = 0.0
    us: float = 0.0
    bytes: float = 0.0


class HostCalls(BaseModel):
    """The host-side activity of a program during one call. Times are in microseconds."""

    waits: float = 0.0  # time the program spent waiting for the device
    wait_us: float = 0.0
    allocations: float = 0.0  # driver allocations and deallocations
    allocation_us: float = 0.0
    copies: dict[str, Moved] = {}  # "HtoD", "DtoH", "DtoD"
    fills: Moved = Moved()
    streams: int = 0  # number of streams that ran kernels
    device_us: float = 0.0  # time during which the device was busy
    kernel_us: float = 0.0  # sum over all kernels; it exceeds `device_us` if kernels overlap
    begin_us: float = 0.0  # time until the device starts its first work
    begin_calls_us: float | None = None  # part of it in CUDA calls before the one that launches the first work; null in old records
    begin_launch_us: float | None = None  # part of it from the beginning of the call that launches the first work to the device's start
    gap_us: float | None = None  # idle time of the device between its first and last work; null in old records
    gaps: dict[str, float] = {}  # the longest parts of it, by the names of the kernels and copies that they precede; empty in old records
    after_us: float | None = None  # time from the end of the last device work to the end of the call


class Profile(BaseModel):
    """The result of the `profile` job, apart from the timeline's bytes (`profiling/timeline.py`)."""

    task: str
    program: str | None
    tool: Literal["nsys", "cupti", "torch-profiler"]
    tool_version: str = ""
    fallback_reason: str = ""  # the reason why nsys was not used, if it was not
    iterations: int
    wall_us_per_iteration: float
    device_busy: float | None = None  # share of the iterations' time during which the device was busy
    launches_per_iteration: float | None = None
    gap_us_p50: float | None = None
    kernels: list[KernelProfile] = []
    counters_tool: Literal["ncu", ""] = ""
    counters_version: str = ""
    counters_reason: str = ""  # the reason why counters are unavailable, or the kernels that lack them
    roofline: Roofline | None = None
    host: HostCalls | None = None  # null if the tool saw no CUDA API calls
    protection: Protection | None = None
    warnings: list[str] = []


class Fault(BaseModel):
    """One sanitizer finding; identical findings are counted. It never contains a path or an address of the host."""

    tool: SanitizerTool
    kind: str  # "out of bounds", "misaligned", "uninitialized read", "race", "barrier", "leak", "undefined behaviour", "error"
    message: str
    kernel: str = ""
    thread: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    access: str = ""  # "write of 4 bytes to global memory"
    line: int | None = None  # line in the kernel's source text, if it was compiled with -lineinfo or -g
    count: int = 1


class Sanitized(BaseModel):
    """The result of the `sanitize` job: the findings by tool, and the reason for each tool that did not run."""

    task: str
    program: str | None
    tool_version: str = ""
    ran: list[SanitizerTool] = []
    missing: dict[str, str] = {}  # tool -> the reason why it did not run
    faults: list[Fault] = []
    seconds: float = 0.0
    protection: Protection | None = None
    warnings: list[str] = []

    @property
    def clean(self) -> bool:
        return bool(self.ran) and not self.faults


class StageEvent(BaseModel):
    """Progress of a running job."""

    stage: str
    status: Literal["started", "passed", "failed", "skipped", "progress"]
    seconds: float | None = None
    detail: str = ""


class JobResult(BaseModel):
    """The result of a job. Exactly one of the results or `error` is set. An error is the host's fault and never the program's."""

    admission: Admission | None = None
    capture: Capture | None = None
    report: Report | None = None
    profile: Profile | None = None
    sanitized: Sanitized | None = None
    calibration: dict[str, Any] | None = None
    error: str = ""
    timeline: bytes | None = Field(default=None, exclude=True)  # sent as raw bytes alongside the JSON
