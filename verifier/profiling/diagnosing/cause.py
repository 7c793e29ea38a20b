"""The findings of rules, and the ceilings against which they measure."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel


class Evidence(BaseModel):
    figure: str
    value: float | str
    unit: str = ""
    means: str = ""


class Cause(BaseModel):
    """A named fault. `lost_us`: the time per call that the program would save without it; an estimate, good enough for ordering."""

    name: str
    lost_us: float
    kernel: str = ""
    evidence: list[Evidence] = []
    says: str = ""


@dataclass(frozen=True)
class Ceilings:
    """The limits of the device."""

    kind: str  # "cpu", "cuda"
    bandwidth_gbs: float  # 1e9 bytes a second
    gflops: float  # fp32
    launch_us: float
    workers: int  # threads, or multiprocessors
    capability: tuple[int, int] | None = None  # compute capability of a GPU; null: not known
