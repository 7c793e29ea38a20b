"""The findings that rules produce, and the ceilings with which they compare a program."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel


class Evidence(BaseModel):
    figure: str
    value: float | str
    unit: str = ""
    means: str = ""


class Cause(BaseModel):
    """A named fault. `lost_us` estimates the time per call that the program would save without the fault, accurately enough for ranking."""

    name: str
    lost_us: float
    kernel: str = ""
    evidence: list[Evidence] = []
    says: str = ""


@dataclass(frozen=True)
class Ceilings:
    """The limits of the device."""

    kind: str  # "cpu", "cuda"
    bandwidth_gbs: float  # 1e9 bytes per second
    gflops: float  # fp32 rate
    launch_us: float
    workers: int  # threads, or multiprocessors
    capability: tuple[int, int] | None = None  # compute capability of a GPU; null: unknown
    product_gflops: float = 0.0  # rate of matrix products in the fastest arithmetic that the precision policy allows; 0: unknown
    cache_bytes: int = 0  # the cache that all multiprocessors share; 0: unknown
    unit_cache_bytes: int = 0  # shared memory of a multiprocessor; 0: unknown
    product_units: str = ""  # the arithmetic in words: "tensor cores, each fp32 product as three of TF32"

    @property
    def on_tensor_cores(self) -> bool:
        """Returns whether there is a rate for products on tensor cores in addition to that of the fp32 units."""
        return self.product_gflops > self.gflops
