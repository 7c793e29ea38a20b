"""A runner's report of its observed calls, checked as data. It may downgrade or refuse a program, never clear it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from verifier.report import Kernel, TorchCompute


class Swallowed(BaseModel):
    """An exception that was raised below forward and did not leave it."""

    error: str = Field(max_length=200)
    line: int | None = None


class Evidence(BaseModel):
    """Evidence with times in milliseconds per call. A figure is null where the device, or this torch, does not tell."""

    model_config = ConfigDict(extra="ignore")

    kernels: list[Kernel] = Field(default=[], max_length=256)  # `own` and `share` are decided by the judge
    wall_ms: float | None = None  # CPU: of a call, under the profiler
    recorded: int = 0  # GPU: calls of the timed form whose device work was recorded
    host_ms: float = 0.0  # GPU: of such a call, until forward returned, including the cost of recording
    busy_ms: float | None = None  # GPU: union of a call's device work
    span_ms: float | None = None  # GPU: first start to last end over all streams
    late_ms: float = 0.0  # launched after forward had returned
    unjoined_ms: float = 0.0  # still running on other streams when forward's outputs were handed over
    idle_cpu: float = 0.0  # processors that the program kept busy after its calls had returned
    changed_late: bool = False  # an output changed after forward had returned
    threads_left: int = 0
    needs: list[TorchCompute] = Field(default=[], max_length=256)  # compute operators of torch that a call uses
    swallowed: list[Swallowed] = Field(default=[], max_length=64)
    blocked: str = ""  # outcome of the call with torch compute blocked: "raised", "returned", "" where it was not made
    compiled: int = 0  # graphs that torch.compile made in the runner
    settings: dict[str, str] = Field(default={}, max_length=64)  # backend flags that differ from what the policy had set
    foreign: list[str] = Field(default=[], max_length=64)  # libraries loaded from files that the builder did not make
    failure: str = Field(default="", max_length=2000)  # why there is no observation
