"""Contract 3: a report is the same versioned object in the database, in the API, on the command line and in the reward.

A field that was not measured is null, and `reasons` gives the reason under the field's name. Times are in milliseconds.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field, model_validator

from verifier.source import Problem
from verifier.task import Flag, Mode, Precision

SCHEMA_VERSION = 1
BUSY_HOST = ("this host is busy", "another process keeps it busy")  # phrases in the message of a verdict that says nothing about the program
MOST_WRONG = 24  # maximum number of wrong tensors that a trial describes
CLOCK = 2  # version of the verifier's clock (`verifier/timing/series.py`); results of different versions are not comparable

Status = Literal["passed", "wrong_result", "build_failed", "crashed", "timed_out", "rejected", "inconclusive", "infrastructure_error"]
Tier = Literal["quick", "full"]
Class = Literal["custom", "mixed", "orchestration"]
Baseline = Literal["eager", "compile", "compile-max-autotune", "compile-reduce-overhead", "cuda-graph"]
# The baseline measured in place of an unavailable one. Autotuning a large network with max-autotune takes minutes, so its CUDA graphs are measured
# without the search.
STAND_INS: dict[Baseline, Baseline] = {"compile-max-autotune": "compile-reduce-overhead"}
Rival = Literal["rival"]
Severity = Literal["refuse", "downgrade", "note"]
StageName = Literal["startup", "static", "build", "correctness", "integrity", "timing", "profile"]
WeightsFrom = Literal["loaded", "matched", "seeded"]


class Environment(BaseModel):
    """Where the measurement was made. It never includes a host name, a path or an environment variable."""

    device: str  # "cpu" or "cuda:0"
    device_name: str  # "NVIDIA H200", or the CPU's model name
    device_model: str  # key for comparisons: "h200", "cpu-x86_64-2c"
    torch: str
    python: str
    compiler: str  # "g++ 12.2.0", "nvcc 13.0"
    cuda: str | None = None
    driver: str | None = None
    capability: str | None = None  # compute capability of a GPU, "9.0"
    threads: int | None = None  # CPU threads used by both sides


class Protection(BaseModel):
    """The layers that confined untrusted code, and the layers that were missing."""

    sandbox: Literal["bubblewrap", "process"]
    layers: list[str]  # e.g. "network namespace", "seccomp", "cgroup v2", "rlimits"
    missing: list[str] = []  # layers that this host lacks, each with instructions for enabling it


class Stage(BaseModel):
    name: StageName
    status: Literal["passed", "failed", "skipped"]
    seconds: float
    detail: str = ""


class WrongTensor(BaseModel):
    """One tensor of a wrong call: an output, an input that calls change, or a state entry. `error` and `bound` use the trial's norm."""

    name: str  # "out[0]", "input 1", "bn.running_mean"
    wrong: int  # number of elements beyond the bound
    elements: int
    first: list[int]  # index of the first of them in shape order
    value: str  # the program's value there
    expected: str
    error: float | None = None  # the largest; null if it is not finite, or if equality is required
    bound: float | None = None
    where: str = ""  # the pattern of the wrong elements, e.g. "dimension 1: the last 4 of 100"; empty if there is none


class Trial(BaseModel):
    """One checked call. `error` and `bound` use the same `norm`."""

    name: str  # "task inputs 1", "negative", "heavy-tailed", "timed call 17", ...
    seed: int
    ok: bool
    output: str = ""  # the output or state entry with the largest error, e.g. "out[0]", "bn.running_mean"
    error: float | None = None
    bound: float | None = None
    norm: str = ""  # e.g. "max |a-b| / rms(b)"
    eager_error: float | None = None  # PyTorch's own error for `output`; null if it was not measured
    decided: float = 0.0  # share of the elements of `output` whose error exceeds the bound, as results of another decision do
    allowed: float = 0.0  # share of the elements of `output` that may
    detail: str = ""  # for a failure: shape, dtype, NaN, or the first wrong index with both values
    compared: int = 0  # for a wrong value: number of outputs, inputs that the task changes, and state entries compared
    wrong: list[WrongTensor] = []  # all of them that are off, at most `MOST_WRONG`, in this order


class Finding(BaseModel):
    """Integrity evidence. A `refuse` finding leads to `rejected`; the others are for a reviewer."""

    rule: str
    severity: Severity
    message: str
    line: int | None = None  # line in the program
    source: Literal["static", "runtime"] = "static"


class Interval(BaseModel):
    """A ratio with its 95 % interval (`verifier/timing/intervals.py`); above 1 means the program is faster."""

    ratio: float
    low: float
    high: float


class Comparison(BaseModel):
    """The program against one baseline, interleaved in random ABBA blocks. Over several pairs of processes, the times and the ratio are geometric
    means. Both exclude the variation that is common to whole turns (`intervals.without_turns`), so the ratio is the quotient of the times."""

    baseline: Baseline | Rival
    speedup: Interval
    program_ms: float  # median over calls in a typical turn
    baseline_ms: float
    blocks: int
    program_samples_ms: list[list[float]]  # one list per block
    baseline_samples_ms: list[list[float]]
    processes: list[int] = []  # for each block, the number of the process pair that ran it; empty: all blocks ran in one pair
    rounds: list[int] = []  # for each process pair, the number of its round; pairs of one round were timed in turn; empty: there was one round


class Timing(BaseModel):
    program_ms: float
    bounded: bool  # a call takes less than 1 ms, so its time includes the launch overhead on the host, as in a user's loop
    clock_agrees: bool
    clock: int = 1  # `CLOCK` of the verifier that measured; reports that predate versioning have none
    lead_in: int | None = None  # uncounted calls at the start of each series; null: calls were timed one by one
    counted: int | None = None  # counted calls per series
    round_trip_ms: float  # cost of an exchange without a call on this host
    charged_ms: float = 0.0  # time added to each call of the program because it needs more time than eager outside its interval; mean over pairs
    charged_for: str = ""  # the part of the exchange in which it needs that time
    preempted: float | None = None  # share of counted calls preempted by other work on the host; these calls are left out
    by_judge: Interval | None = None  # the speedup over eager by the judge's own clock; null: this clock is too unsteady for calls this short
    comparisons: list[Comparison]
    rival: Comparison | None = None  # comparison with the job's other program in the same blocks; neither a baseline nor ranked
    throttled: bool | None = None
    pairs: int = 1  # number of fresh processes that ran the program; the same number ran eager
    preparing: dict[str, float] = {}  # seconds until each baseline other than eager was ready to be timed, compilation included; these times overlap
    waiting: float | None = None  # seconds during which other judges measured on the device; null in reports that predate this field
    measuring: float | None = None  # seconds with exclusive use of the device (warm-up, blocks, checks); like `waiting`, it includes repeats
    repeatability: str = ""  # how much processes that run the same code differ on this host, and how that was determined

    @property
    def earlier(self) -> bool:
        """Returns whether this timing was measured by an earlier clock and is therefore not comparable with today's measurements."""
        return self.clock < CLOCK


class ObservedKernel(BaseModel):
    """One kernel (or, on the CPU, one operator or own function) observed at run time, per call."""

    name: str
    calls: float
    ms: float
    share: float  # share of the program's device time
    own: bool  # defined by the program rather than by a library
    via: str = ""  # the operator that launched it, e.g. "aten::addmm"; empty if the program launched it itself


class TorchCompute(BaseModel):
    """A torch operator that a program's call needs for its arithmetic."""

    name: str  # "aten.addmm"
    calls: float
    line: int | None = None  # program line of the first call
    share: float | None = None  # share of the program's device time


class RequestedBuild(BaseModel):
    """A build that the program requested through PyTorch's extension functions, or after it was imported."""

    kind: str  # "load_inline", "load" or "stitch_build"
    name: str
    sha256: str  # hash of sources, flags and files
    nbytes: int  # size of sources and files
    when: str  # what the program was doing at the time: "import", "construct", "call"
    line: int | None = None
    seconds: float = 0.0  # compiler time in seconds
    failure: str = ""  # the first line of the compiler output if the build failed


class BuildInfo(BaseModel):
    seconds: float
    cached: bool
    compiler_output: str = ""  # trimmed to the helpful part
    notes: list[str] = []  # how each unit was compiled: its headers and, if light headers were not used, why
    requests: list[RequestedBuild] = []
    resources: list[dict[str, int | float | str]] = []  # per kernel: registers, spills, shared memory


class Report(BaseModel):
    version: int = SCHEMA_VERSION
    task: str
    program: str
    rival: str | None = None  # hash of the other program that it was timed against, in addition to eager
    tier: Tier
    precision: Precision
    mode: Mode
    status: Status
    message: str = ""  # one human-readable sentence: what happened, where, and what to try
    problems: list[Problem] = []
    flags: list[Flag] = []
    environment: Environment
    protection: Protection
    stages: list[Stage] = []
    weights: WeightsFrom | None = None
    backward: bool = False  # whether gradients were also compared, in which case every time covers forward plus backward
    oracle: str = ""  # where fp64 was computed ("cuda:0", "cpu"), or why it was not available
    build: BuildInfo | None = None
    trials: list[Trial] = []
    untried: list[str] = []  # planned trials that were skipped, each with the reason: "negative: the task itself does not stay finite"
    findings: list[Finding] = []
    timing: Timing | None = None
    faster: bool = False  # whether the lower bound of the speedup over eager is above 1
    kernels: list[ObservedKernel] = []
    torch_compute: list[TorchCompute] = []  # torch compute operators that the program needs
    own_share: float | None = None
    program_class: Class | None = None
    peak_bytes: int | None = None
    floor_ms: float | None = None  # roofline bound for the task on this device
    floor_fraction: float | None = None  # floor_ms / program_ms
    seed: int | None = None  # logged, and shown after the verdict; never passed to the runner
    without_static: bool = False  # whether the static stage was disabled to test later stages; such a report is never a result, so `speedup` is null
    reasons: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def performance_only_when_passed(self) -> Report:
        if self.status != "passed" and (self.timing is not None or self.faster):
            raise ValueError("performance exists only on a report that passed")
        if self.without_static and self.faster:
            raise ValueError("a report without the static stage claims nothing")
        return self

    def against(self, baseline: Baseline) -> Comparison | None:
        return next((c for c in self.timing.comparisons if c.baseline == baseline), None) if self.timing else None

    @property
    def host_busy(self) -> bool:
        """Returns whether there were no findings against the program, and only other work on the host prevented its measurement."""
        return self.status == "inconclusive" and any(said in self.message for said in BUSY_HOST)

    @property
    def speedup(self) -> Interval | None:
        """Returns the speedup over eager, or null for a report that must not become a result."""
        comparison = self.against("eager")
        return comparison.speedup if comparison and not self.without_static else None
