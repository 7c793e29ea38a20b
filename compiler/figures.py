"""Peak rates of a device, which the compiler uses to estimate groups and to choose kernel parameters."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

Arithmetic = Literal["fp32", "3xtf32", "tf32", "half"]

ANNOUNCED = (  # (our field, the verifier's name for it); if a field occurs twice, the later entry wins because it is measured
    ("bandwidth_gbs", "bandwidth_gbs"), ("bandwidth_gbs", "stream_gbs"), ("fp32_gflops", "fp32_gflops"), ("fp32_gflops", "fp32_product_gflops"),
    ("tf32_gflops", "tf32_gflops"), ("half_gflops", "bf16_gflops"), ("units", "multiprocessors"), ("cache_bytes", "l2_bytes"),
    ("cache_gbs", "cache_gbs"), ("cluster_read_gbs", "cluster_read_gbs"), ("grid_us", "grid_us"), ("clock_mhz", "clock_mhz"),
)  # fmt: skip


class DeviceFigures(BaseModel):
    """Performance figures of a device: the rates that a plain stream or a matrix product achieves, not data-sheet values."""

    model_config = ConfigDict(frozen=True)

    kind: Literal["cpu", "cuda"]
    name: str
    bandwidth_gbs: float  # memory bandwidth for reads and writes combined
    fp32_gflops: float
    tf32_gflops: float = 0.0  # tensor-core products; 0 means the fp32 rate
    half_gflops: float = 0.0  # the same for bf16 or fp16 operands; 0 means the TF32 rate
    units: int  # CPU threads, or streaming multiprocessors
    cache_bytes: int  # the largest cache that all units share
    cache_gbs: float = 0.0  # its bandwidth for reads and writes combined; 0 means unknown
    clusters: tuple[tuple[int, int], ...] = ()  # number of clusters resident at once if a block takes a multiprocessor, after the blocks of a cluster
    cluster_us: tuple[tuple[int, float], ...] = ()  # an exchange of a value a thread in a cluster, with its barrier, after the blocks of a cluster
    cluster_read_gbs: float = 0.0  # reads of another block's shared memory, by all blocks together; 0 means unknown
    grid_us: float = 0.0  # such an exchange through L2, with a barrier of one block a multiprocessor; 0 means unknown
    clock_mhz: float = 0.0  # highest clock rate of a multiprocessor; 0 means unknown
    launch_us: float  # one kernel launch, or one parallel region
    unit_cache_bytes: int  # L2 cache of a core, or shared memory of a multiprocessor
    capability: tuple[int, int] | None = None  # compute capability of a GPU, or None if unknown

    @classmethod
    def h200(cls) -> DeviceFigures:
        return cls(
            kind="cuda", name="NVIDIA H200", bandwidth_gbs=4200, fp32_gflops=60000, tf32_gflops=350000, half_gflops=780000, units=132,
            cache_bytes=50 << 20, launch_us=3.0, unit_cache_bytes=227 << 10, capability=(9, 0),
        )  # fmt: skip

    @classmethod
    def cpu(cls, threads: int = 2, name: str = "CPU") -> DeviceFigures:
        """Assumes a server CPU with AVX2 or AVX-512 that achieves about 12 GB/s and 60 GFLOP/s per thread."""
        return cls(
            kind="cpu", name=name, bandwidth_gbs=12.0 * threads, fp32_gflops=60.0 * threads, units=threads,
            cache_bytes=32 << 20, launch_us=4.0, unit_cache_bytes=1 << 20,
        )  # fmt: skip

    @classmethod
    def of(cls, environment: Any, device: str = "cpu") -> DeviceFigures:
        """Builds the figures from a report's environment (the model or its dict) or from the doctor's JSON. Missing values fall back to the
        defaults."""
        data = environment if isinstance(environment, dict) else environment.model_dump() if environment is not None else {}
        device = str(data.get("device") or device)
        name = str(data.get("device_name") or "")
        if device.startswith("cuda"):
            base = cls.h200()
            update = {ours: data[theirs] for ours, theirs in ANNOUNCED for value in [data.get(theirs)] if value}
            counts = tuple((size, int(count)) for size, count in _by_size(data, "clusters"))
            by_size = {"clusters": counts, "cluster_us": _by_size(data, "cluster_us")}
            update |= {ours: pairs for ours, pairs in by_size.items() if pairs}
            return base.model_copy(update={"name": name or base.name, "capability": _capability(data.get("capability")), **update})
        threads = int(data.get("threads") or _count(str(data.get("device_model") or "")) or 2)
        base = cls.cpu(threads, name or "CPU")
        return base.model_copy(update={field: float(data[field]) for field in ("bandwidth_gbs", "fp32_gflops") if data.get(field)})

    def memory_ms(self, count: int) -> float:
        """Returns the time in milliseconds to move `count` bytes once."""
        return count / self.bandwidth_gbs / 1e6

    def compute_ms(self, flops: int, arithmetic: Arithmetic = "fp32") -> float:
        return flops / self.gflops(arithmetic) / 1e6

    def product_gflops(self, precision: str) -> float:
        """Returns the rate at which the vendor library computes matrix products and convolutions under a precision policy."""
        return self.gflops(library_arithmetic(precision))

    def product_ms(self, flops: int, precision: str) -> float:
        return flops / self.product_gflops(precision) / 1e6

    def gflops(self, arithmetic: Arithmetic) -> float:
        """Returns the peak rate for one kind of arithmetic, counted in the task's own operations. For example, an fp32 product computed as three TF32
        products runs at a third of the TF32 rate."""
        rate = {"fp32": self.fp32_gflops, "3xtf32": self.tf32_gflops / 3, "tf32": self.tf32_gflops, "half": self.half_gflops}[arithmetic]
        return max(rate, self.fp32_gflops)


def library_arithmetic(precision: str) -> Arithmetic:
    """Returns the arithmetic that the vendor library uses for matrix products and convolutions under a precision policy."""
    known: dict[str, Arithmetic] = {"tf32": "tf32", "bf16": "half", "fp16": "half"}
    return known.get(precision, "fp32")


def own_arithmetic(precision: str) -> Arithmetic:
    """Returns the arithmetic that this compiler's own products use on a device with tensor cores."""
    return "3xtf32" if precision == "fp32-strict" else library_arithmetic(precision)


def _capability(said: Any) -> tuple[int, int] | None:
    """Parses "9.0" into (9, 0). It never falls back to a default capability, which could select methods for a newer GPU than the one in use."""
    match = re.fullmatch(r"(\d+)\.(\d+)", str(said or ""))
    return (int(match[1]), int(match[2])) if match else None


def _by_size(data: dict[str, Any], name: str) -> tuple[tuple[int, float], ...]:
    """Returns the figures that the verifier stores under a name and a cluster size, such as "clusters_8", keyed by the cluster size."""
    found = {int(match[1]): float(value) for key, value in data.items() if value and (match := re.fullmatch(rf"{name}_(\d+)", key))}
    return tuple(sorted(found.items()))


def _count(device_model: str) -> int | None:
    """Returns the thread count in a key such as "cpu-x86_64-2c"."""
    match = re.search(r"-(\d+)c$", device_model)
    return int(match[1]) if match else None
