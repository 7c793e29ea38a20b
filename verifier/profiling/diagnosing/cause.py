"""What rules find and what they measure against."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel


class Evidence(BaseModel):
    figure: str
    value: float | str
    unit: str = ""
    means: str = ""


class Cause(BaseModel):
    """A fault that has a name. `lost_us`: of one call, what the program would be faster without it; an estimate, good for the order."""

    name: str
    lost_us: float
    kernel: str = ""
    evidence: list[Evidence] = []
    says: str = ""


@dataclass(frozen=True)
class Ceilings:
    """What the device can do at most."""

    kind: str  # "cpu", "cuda"
    bandwidth_gbs: float  # 1e9 bytes a second
    gflops: float  # fp32
    launch_us: float
    workers: int  # threads, or multiprocessors
    capability: tuple[int, int] | None = None  # compute capability of a GPU; null: not known
