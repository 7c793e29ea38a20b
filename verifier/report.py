"""Contract 3: a report, the same versioned object in the database, the API, the command line and the reward.

A field that was not measured is null, and `reasons` says why under the field's name. Times are in milliseconds.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field, model_validator

from verifier.source import Problem
from verifier.task import Flag, Mode, Precision

SCHEMA_VERSION = 1
BUSY_HOST = ("this host is busy", "another process keeps it busy")  # in the message of a verdict that says nothing about the program
CLOCK = 2  # version of the verifier's clock (`verifier/timing/series.py`): results of different versions are not comparable

Status = Literal["passed", "wrong_result", "build_failed", "crashed", "timed_out", "rejected", "inconclusive", "infrastructure_error"]
Tier = Literal["quick", "full"]
Class = Literal["custom", "mixed", "orchestration"]
Baseline = Literal["eager", "compile", "compile-max-autotune", "compile-reduce-overhead", "cuda-graph"]
# The baseline measured in place of one that is not available: max-autotune takes minutes to compile for a large network, so its CUDA graphs are
# measured without its search.
STAND_INS: dict[Baseline, Baseline] = {"compile-max-autotune": "compile-reduce-overhead"}
Rival = Literal["rival"]
Severity = Literal["refuse", "downgrade", "note"]
StageName = Literal["startup", "static", "build", "correctness", "integrity", "timing", "profile"]
WeightsFrom = Literal["loaded", "matched", "seeded"]


class Environment(BaseModel):
    """Where it was measured. Never a host name, a path or an environment variable."""

    device: str  # "cpu" or "cuda:0"
    device_name: str  # "NVIDIA H200", or the CPU's model name
    device_model: str  # key for comparisons: "h200", "cpu-x86_64-2c"
    torch: str
    python: str
    compiler: str  # "g++ 12.2.0", "nvcc 13.0"
    cuda: str | None = None
    driver: str | None = None
    capability: str | None = None  # compute capability of a GPU, "9.0"
    threads: int | None = None  # CPU threads that both sides used


class Protection(BaseModel):
    """What confined strangers' code, and what was missing."""

    sandbox: Literal["bubblewrap", "process"]
    layers: list[str]  # e.g. "network namespace", "seccomp", "cgroup v2", "rlimits"
    missing: list[str] = []  # layers that this host lacks, each with the way to get it


class Stage(BaseModel):
    name: StageName
    status: Literal["passed", "failed", "skipped"]
    seconds: float
    detail: str = ""


class Trial(BaseModel):
    """One call that was checked. `error` and `bound` are in the same `norm`."""

    name: str  # "task inputs 1", "negative", "heavy-tailed", "timed call 17", ...
    seed: int
    ok: bool
    output: str = ""  # the worst output or state entry, e.g. "out[0]", "bn.running_mean"
    error: float | None = None
    bound: float | None = None
    norm: str = ""  # e.g. "max |a-b| / rms(b)"
    detail: str = ""  # for a failure: shape, dtype, NaN, first bad index with both values


class Finding(BaseModel):
    """Evidence about integrity. `refuse` ends in `rejected`; the rest is for a reviewer."""

    rule: str
    severity: Severity
    message: str
    line: int | None = None  # in the program
    source: Literal["static", "runtime"] = "static"


class Interval(BaseModel):
    """A ratio with its 95 % interval (`verifier/timing/intervals.py`); above 1 means the program is faster."""

    ratio: float
    low: float
    high: float


class Comparison(BaseModel):
    """The program against one baseline, interleaved in random ABBA blocks. Over several pairs of processes, times and ratio are geometric means. Both
    exclude what whole turns have in common (`intervals.without_turns`), so the ratio is the quotient of the times."""

    baseline: Baseline | Rival
    speedup: Interval
    program_ms: float  # median over calls, in a typical turn
    baseline_ms: float
    blocks: int
    program_samples_ms: list[list[float]]  # one list per block
    baseline_samples_ms: list[list[float]]
    processes: list[int] = []  # for each block, the pair of processes in which it ran; empty: all in one
    rounds: list[int] = []  # for each pair of processes, a number: pairs with the same one were timed in turn; empty: all of them


class Timing(BaseModel):
    program_ms: float
    bounded: bool  # a call takes less than 1 ms: its time includes the host's cost of starting it, as in a user's loop
    clock_agrees: bool
    clock: int = 1  # `CLOCK` of the measuring verifier; reports from before there were versions have none
    lead_in: int | None = None  # calls before the counted ones of each series; null: calls were timed one by one
    counted: int | None = None  # calls of a series that count
    round_trip_ms: float  # what an exchange without a call costs on this host
    charged_ms: float = 0.0  # added to each call of the program for the time that it needs outside its interval beyond eager; mean over pairs
    charged_for: str = ""  # the part in which it needs that time
    preempted: float | None = None  # share of counted calls during which other work on the host had the processors; these calls are left out
    by_judge: Interval | None = None  # the speedup over eager by the judge's own clock; null: the clock is too unsteady for calls this short
    comparisons: list[Comparison]
    rival: Comparison | None = None  # against the job's other program, in the same blocks; it is not a baseline and counts in no ranking
    throttled: bool | None = None
    pairs: int = 1  # fresh processes of the program, and as many of eager
    preparing: dict[str, float] = {}  # seconds until each baseline other than eager could be timed, compilation included; they overlap
    waiting: float | None = None  # seconds in which other judges of the device measured meanwhile; null: a report from before this was recorded
    measuring: float | None = None  # seconds with exclusive use of the device: warm-up, blocks, checks; like `waiting` with all repeats
    repeatability: str = ""  # how much processes of the same code differ on this host, and how that is known

    @property
    def earlier(self) -> bool:
        """Whether it was measured by an earlier clock: not comparable with today's measurements."""
        return self.clock < CLOCK


class Kernel(BaseModel):
    """One kernel (or, on the CPU, one operator or own function) seen at run time, per call."""

    name: str
    calls: float
    ms: float
    share: float  # of the program's time on its device
    own: bool  # defined by the program, as opposed to a library
    via: str = ""  # the operator that launched it, e.g. "aten::addmm"; empty where the program launched it itself


class TorchCompute(BaseModel):
    """An operator of torch that a program's call needs for its arithmetic."""

    name: str  # "aten.addmm"
    calls: float
    line: int | None = None  # line of the program where it is first called
    share: float | None = None  # of the program's time on its device


class RequestedBuild(BaseModel):
    """A build that the program requested through PyTorch's functions, or after its import."""

    kind: str  # "load_inline", "load" or "stitch_build"
    name: str
    sha256: str  # of sources, flags and files
    nbytes: int  # of sources and files
    when: str  # what the program was doing: "import", "construct", "call"
    line: int | None = None
    seconds: float = 0.0  # of the compilers
    failure: str = ""  # the first line of their output, where the build failed


class BuildInfo(BaseModel):
    seconds: float
    cached: bool
    compiler_output: str = ""  # trimmed to what helps
    notes: list[str] = []  # how each unit was compiled: with which headers, and if not with light ones, why
    requests: list[RequestedBuild] = []
    resources: list[dict[str, int | float | str]] = []  # per kernel: registers, spills, shared memory


class Report(BaseModel):
    version: int = SCHEMA_VERSION
    task: str
    program: str
    rival: str | None = None  # hash of the other program against which it was timed, besides eager
    tier: Tier
    precision: Precision
    mode: Mode
    status: Status
    message: str = ""  # one sentence for people: what happened, where, what to try
    problems: list[Problem] = []
    flags: list[Flag] = []
    environment: Environment
    protection: Protection
    stages: list[Stage] = []
    weights: WeightsFrom | None = None
    backward: bool = False  # gradients were compared too, and every time covers forward and backward
    oracle: str = ""  # where fp64 was computed ("cuda:0", "cpu"), or why it was not
    build: BuildInfo | None = None
    trials: list[Trial] = []
    untried: list[str] = []  # trials that were planned but skipped, each with the reason: "negative: the task itself does not stay finite"
    findings: list[Finding] = []
    timing: Timing | None = None
    faster: bool = False  # whether the lower bound against eager is above 1
    kernels: list[Kernel] = []
    torch_compute: list[TorchCompute] = []  # torch's compute operators that the program needs
    own_share: float | None = None
    program_class: Class | None = None
    peak_bytes: int | None = None
    floor_ms: float | None = None  # roofline floor of the task on this device
    floor_fraction: float | None = None  # floor_ms / program_ms
    seed: int | None = None  # logged and shown after the verdict; never given to the runner
    without_static: bool = False  # the static stage was switched off for a test of the later stages: never a result, so `speedup` is null
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
        """Whether nothing was found against the program and only other work on the host prevented its measurement."""
        return self.status == "inconclusive" and any(said in self.message for said in BUSY_HOST)

    @property
    def speedup(self) -> Interval | None:
        """The speedup over eager; null on a report that must not become a result."""
        comparison = self.against("eager")
        return comparison.speedup if comparison and not self.without_static else None
