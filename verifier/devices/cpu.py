"""The CPU as a device: shared memory, g++ with OpenMP, and a roofline measured on this host."""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import platform
import shutil
import subprocess
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verifier.devices.base import Arena, Bind, Ceiling, Device, NoRoom
from verifier.shim.clock import ClockError, Leader, Native, build_clock

if TYPE_CHECKING:  # importing it takes a second, during which parties are already starting
    import torch

    from verifier.report import Environment

_ADD_SEALS, _SEAL_SEAL, _SEAL_SHRINK, _SEAL_GROW = 1033, 1, 2, 4
SETTLE_SECONDS = 0.012
# Flags of the x86 vector extensions for which torch.compile generates code.
_VECTOR_FLAGS = (
    "-mavx2",
    "-mfma",
    "-mf16c",
    "-mavx512f",
    "-mavx512dq",
    "-mavx512vl",
    "-mavx512bw",
    "-mavx512vnni",
    *("-mamx-tile", "-mamx-bf16", "-mamx-int8"),
)


class CpuArena(Arena):
    """A sealed memfd: a party that maps it can write to it, but can neither shrink nor grow it."""

    def __init__(self, nbytes: int):
        import torch

        self.nbytes = max(nbytes, mmap.PAGESIZE)
        self.fds = ()
        fd = os.memfd_create("arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fd, self.nbytes)
            fcntl.fcntl(fd, _ADD_SEALS, _SEAL_SHRINK | _SEAL_GROW | _SEAL_SEAL)
            self._memory = mmap.mmap(fd, self.nbytes, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        except OSError as error:
            os.close(fd)
            raise NoRoom(f"there is no memory for {self.nbytes >> 20} MiB of tensors ({error.strerror})") from None
        self.handle = {"nbytes": self.nbytes}
        self.fds = (fd,)
        self._bytes: torch.Tensor | None = torch.frombuffer(self._memory, dtype=torch.uint8)

    @property
    def bytes(self) -> torch.Tensor:
        assert self._bytes is not None, "the arena is closed"
        return self._bytes

    def leave(self) -> None:
        self._bytes = None  # the mapping lives as long as the last tensor that uses it

    def close(self) -> None:
        for fd in self.fds:
            os.close(fd)
        self.fds = ()
        self._bytes = None

    def __del__(self) -> None:
        self.close()


class CpuDevice(Device):
    name = "cpu"
    kind = "cpu"
    torch_device = "cpu"
    says_seen = True

    def __init__(self, data_dir: Path):
        self.data_dir = data_dir
        self.processors = sorted(os.sched_getaffinity(0))
        # One processor is left to the judge and to the rest of the host. With two threads on two processors, a process that used 8 % of one of them
        # preempted 38 to 43 % of the calls, and the host was called busy; with one thread, 7 %.
        self.threads = max(len(self.processors) - 1, 1)
        self._flush: torch.Tensor | None = None
        self._leader: Leader | None = None
        self._ceiling: Ceiling | None = None
        self._repeat_ceiling = False
        self.shim = self._build_shim()

    def open(self) -> None:
        import torch

        torch.set_num_threads(self.threads)

    @property
    def timed_on(self) -> list[int]:
        """Returns as many processors as threads, so that a program gains nothing by starting more threads than PyTorch has."""
        return self.processors[: self.threads] if self.threads < len(self.processors) else []

    @property
    def wide_on(self) -> list[int]:
        return self.processors if self.timed_on else []

    @property
    def stands_on(self) -> list[int]:
        return []  # its threads share the processors

    def _build_shim(self) -> Path | None:
        """Compiles the shim once per host. If there is no compiler, Python's clock is used, and the report says so."""
        try:
            return build_clock(self.data_dir / "shim")
        except ClockError:
            return None

    def environment(self) -> Environment:
        import torch

        from verifier.report import Environment  # the device is opened before pydantic is imported

        return Environment(
            device=self.name,
            device_name=_cpu_name(),
            device_model=f"cpu-{platform.machine()}-{self.threads}c",
            torch=torch.__version__,
            python=platform.python_version(),
            compiler=compiler_version(),
            threads=self.threads,
        )

    def allocate(self, nbytes: int) -> CpuArena:
        available = _available_memory()
        if available is not None and nbytes > available * 0.8:
            raise NoRoom(f"{nbytes >> 20} MiB of tensors do not fit into the {available >> 20} MiB of memory that are free")
        return CpuArena(nbytes)

    def sync(self) -> None:
        """Does nothing, because nothing is asynchronous on the CPU."""

    def leader(self) -> Leader | None:
        if self._leader is None and self.shim is not None:
            native = Native(self.shim)
            native.use_threads(self.threads)
            self._leader = Leader(native, spins=False)  # a judge that spins takes a processor away from the program
        return self._leader

    def flush_caches(self) -> None:
        if self._flush is None:
            import torch

            self._flush = torch.zeros(_flush_bytes(), dtype=torch.uint8)
        self._flush.add_(1)

    def settle(self) -> None:
        """Waits for the previous party's idle OpenMP threads, which spin for several milliseconds (libgomp: 300,000 rounds) before they sleep."""
        time.sleep(SETTLE_SECONDS)

    def ceiling(self, precision: str) -> Ceiling:
        """Returns the bandwidth of large streams and the rate of a large matrix product. These are the best values ever measured on this host, and
        are stored in the data folder. Only a host's first judge waits for the measurement; later judges repeat it when idle, and the values can only
        increase."""
        if self._ceiling is None:
            kept = self._kept_ceiling()
            self._ceiling = kept or self._measured_ceiling()
            self._repeat_ceiling = kept is not None
        return self._ceiling

    def rest(self) -> None:
        if self._repeat_ceiling:
            self._repeat_ceiling = False
            self._ceiling = self._measured_ceiling()

    def _kept_ceiling(self) -> Ceiling | None:
        try:
            kept = json.loads(self._ceiling_path.read_text())
            return Ceiling(float(kept["bytes_per_second"]), float(kept["flops_per_second"]), "measured on this host")
        except (OSError, ValueError, KeyError, TypeError):
            return None  # the first judge on this host, or a damaged file: it is rewritten

    def _measured_ceiling(self) -> Ceiling:
        figures = _measure_ceiling()
        kept = self._kept_ceiling()
        if kept is not None:
            figures = {name: max(value, getattr(kept, name)) for name, value in figures.items()}
        path = self._ceiling_path
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_suffix(f".{os.getpid()}")
        scratch.write_text(json.dumps(figures))
        os.replace(scratch, path)
        return Ceiling(figures["bytes_per_second"], figures["flops_per_second"], "measured on this host")

    @property
    def _ceiling_path(self) -> Path:
        return self.data_dir / "native" / f"ceiling-{self.threads}.json"

    def config(self) -> dict[str, Any]:
        shim = {"shim": self._shim_target(), "shim_host": str(self.shim)} if self.shim else {}
        return {"kind": "cpu", "threads": self.threads, "flush_bytes": _flush_bytes(), **shim}

    def _shim_target(self) -> str:
        return "/opt/stitchwork/clock.so"

    def binds(self, role: str) -> list[Bind]:
        return [Bind(str(self.shim), self._shim_target())] if self.shim else []

    def variables(self, role: str) -> dict[str, str]:
        threads = {"OMP_NUM_THREADS": str(self.threads)}  # not bound one by one: the judge binds the party as a whole
        return threads if role == "builder" else threads | quick_compile()

    def missing_compiler(self) -> str:
        return "" if shutil.which("g++") else "there is no g++ on this machine: install it (apt install g++), then run again"


@cache
def quick_compile() -> dict[str, str]:
    """Returns settings that spare torch.compile work in each party, whose cache folder is empty: a softmax then takes 13 s instead of 32 s. The
    generated code is the same. The settings skip the precompiled header, which pays off only for many kernels. They also skip probing each vector
    extension of the processor with a compilation and a process; the probe tests whether the compiler supports the extension's flags and whether this
    torch has its functions, which is true of all releases that PyTorch publishes."""
    variables = {"TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0"}
    try:
        done = subprocess.run(["g++", "-fsyntax-only", *_VECTOR_FLAGS, "-x", "c++", "/dev/null"], capture_output=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return variables
    return variables | ({"TORCHINDUCTOR_VEC_ISA_OK": "1"} if done.returncode == 0 else {})


@cache
def compiler_version() -> str:
    try:
        done = subprocess.run(["g++", "-dumpfullversion"], capture_output=True, text=True, timeout=10)
        return f"g++ {done.stdout.strip()}"
    except (OSError, subprocess.SubprocessError):
        return "none"


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _available_memory() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return None


def _last_level_cache() -> int:
    """Returns the size in bytes of the largest cache that the system reports, or 32 MiB if it reports none."""
    largest = 0
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        try:
            text = path.read_text().strip()
            largest = max(largest, int(text.rstrip("KMG")) * {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1], 1))
        except (OSError, ValueError):
            continue
    return largest or 32 << 20


@cache
def _flush_bytes() -> int:
    return min(2 * _last_level_cache(), 64 << 20)


def _measure_ceiling() -> dict[str, float]:
    import torch

    source = torch.ones(16 << 20)  # 64 MiB
    target = torch.empty_like(source)
    left, right = torch.rand(1024, 1024), torch.rand(1024, 1024)
    copy = read = product = float("inf")
    for _ in range(8):
        begin = time.perf_counter()
        target.copy_(source)
        copy = min(copy, time.perf_counter() - begin)
        begin = time.perf_counter()
        source.sum()  # a read-only stream: stores cost more than the bytes that they move
        read = min(read, time.perf_counter() - begin)
        begin = time.perf_counter()
        torch.mm(left, right)
        product = min(product, time.perf_counter() - begin)
    return {"bytes_per_second": max(2 * source.nbytes / copy, source.nbytes / read), "flops_per_second": 2 * 1024**3 / product}
