"""A runner's report about its observed calls, validated as data. It can downgrade or refuse a program, but it can never clear one."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from verifier.report import ObservedKernel, TorchCompute


class Swallowed(BaseModel):
    """An exception that was raised below forward and caught before it left forward."""

    error: str = Field(max_length=200)
    line: int | None = None


class Evidence(BaseModel):
    """Evidence with times in milliseconds per call. A value is null if the device, or this torch version, does not provide it."""

    model_config = ConfigDict(extra="ignore")

    kernels: list[ObservedKernel] = Field(default=[], max_length=256)  # the judge decides `own` and `share`
    beside: list[tuple[int, int, float]] = Field(default=[], max_length=512)  # GPU: two kernels, by number, and the time for which both ran
    wall_ms: float | None = None  # CPU: time of a call under the profiler
    recorded: int = 0  # GPU: number of calls in the timed form whose device work was recorded
    host_ms: float = 0.0  # GPU: time until forward returned in such a call, including the cost of recording
    busy_ms: float | None = None  # GPU: union of the intervals of a call's device work
    span_ms: float | None = None  # GPU: from the first start to the last end over all streams
    late_ms: float = 0.0  # work launched after forward had returned
    unjoined_ms: float = 0.0  # work still running on other streams when forward's outputs were handed over
    idle_cpu: float = 0.0  # number of processors that the program kept busy after its calls had returned
    changed_late: bool = False  # whether an output changed after forward had returned
    threads_left: int = 0
    needs: list[TorchCompute] = Field(default=[], max_length=256)  # torch compute operators that a call used
    swallowed: list[Swallowed] = Field(default=[], max_length=64)
    blocked: str = ""  # result of the call with torch compute blocked: "raised" or "returned"; "" if the call was not made
    compiled: int = 0  # number of graphs that torch.compile created in the runner
    settings: dict[str, str] = Field(default={}, max_length=64)  # backend flags that differ from the policy's settings
    foreign: list[str] = Field(default=[], max_length=64)  # libraries loaded from files that the builder did not create
    failure: str = Field(default="", max_length=2000)  # the reason why there is no observation
