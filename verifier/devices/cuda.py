"""The judge's half of a CUDA device. It exports memory to parties, and it flushes, samples and probes the GPU."""

from __future__ import annotations

import contextlib
import glob
import os
import platform
import re
import shutil
import statistics
import subprocess
import threading
import time
from collections import deque
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verifier.devices import cuda_driver, cuda_exchanges, cuda_rates
from verifier.devices.base import Arena, Bind, Ceiling, Device, DeviceError
from verifier.devices.cuda_arena import arena, sharing
from verifier.devices.cuda_driver import CudaError, GpuFacts, GpuIdentity, Nvml
from verifier.devices.host_cores import cores
from verifier.shim.clock import ClockError, Leader, Native, build_clock

if TYPE_CHECKING:  # a judge starts its first parties before it has imported pydantic
    from verifier.report import Environment

_CLOCK = "/opt/stitchwork/cuda-clock.so"  # its path in a sandbox
KEPT_BYTES = 2 << 30  # cached bytes above which the judge releases memory, because parties on the same GPU need it
SHORT = 0.3  # share of free device memory below which the judge releases its cache
MINIMUM_FREE = 2 << 30  # bytes; a task of ordinary size needs at least this much
# A tiny kernel waits 0.27 ms on an H200 if there is only a context switch, and 1.5 ms or more if another process has work. Waits measured while other
# judges are active must not hide a program that keeps the GPU busy, or another process's kernels.
MOST_USUAL_NS = 300_000
RESTING, RESTING_NS = 4, 400_000  # multiple of a tiny kernel's usual wait, and a fifth of a time slice; longer waits include other work
CORES = cores(os.sched_getaffinity(0))  # the cores available to this process at startup, each with its processors
FEWEST = 8  # minimum number of processors per GPU; with fewer, none are chosen
APART, TIMED = 2, 4  # minimum number of processors left to the judge, and number of processors on which sides are timed
MOST_COMPILERS = 8  # compile workers of torch.compile; each takes several hundred MiB of the party's memory
_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset", "/dev/nvidia-caps")
# Dense floating-point operations per clock and multiprocessor, as (fp32 on CUDA cores, TF32, 16-bit on tensor cores).
_RATES = {(7, 0): (128, None, 1024), (7, 5): (128, None, 1024), (8, 0): (128, 1024, 2048), (8, 6): (256, 256, 512), (8, 9): (256, 256, 512)} | {
    (9, 0): (256, 2048, 4096),
    (10, 0): (256, 4096, 8192),
    (12, 0): (256, 256, 512),
}


class CudaDevice(Device):
    kind = "cuda"
    begins_ahead = True

    def __init__(self, name: str, data_dir: Path):
        index = name.partition(":")[2] or "0"
        if not index.isdigit():
            raise DeviceError(f"there is no device {name!r}; use cuda:0")
        self.index = int(index)
        self.name = self.torch_device = f"cuda:{self.index}"
        self.data_dir = data_dir
        only = cuda_driver.only_gpu() if self.index == 0 else None
        sharing()  # reports an invalid setting immediately
        self.identity: GpuIdentity = only or GpuIdentity(self.facts.uuid, self.facts.capability)
        self.nvml = Nvml(self.identity.uuid)
        try:
            self.clock = build_clock(data_dir / "shim")
        except ClockError as error:
            raise DeviceError(str(error)) from None

        self._beginning: list[threading.Thread] = []

    @cached_property
    def facts(self) -> GpuFacts:
        """Initialises the driver, which takes a moment, and returns the device facts. Raises `DeviceError`."""
        if cuda_driver.driver() is None:
            raise DeviceError(f"no GPU found: {cuda_driver.why_no_driver()}")
        if self.index >= cuda_driver.gpu_count():
            raise DeviceError(f"there is no {self.name}: this host has {cuda_driver.gpu_count()} GPU(s)")
        return cuda_driver.facts(self.index)

    @property
    def _flush_bytes(self) -> int:
        return 3 * max(self.facts.l2_bytes, 64 << 20)

    @cached_property
    def _share(self) -> list[list[int]]:
        """Returns this GPU's part of the host, based on its number among all GPUs that NVML reports. Otherwise, judges that see one GPU each
        (`CUDA_VISIBLE_DEVICES`) would all get the same part. If a job has only some of the host's processors and one of its GPUs, it divides the
        processors among the GPUs that CUDA shows."""
        known = self.nvml.number()
        mine = share_of_host(*known) if known is not None else []
        own_processors = sum(map(len, CORES)) < (os.cpu_count() or 0)
        if known is None or (own_processors and sum(map(len, mine)) < FEWEST):
            mine = share_of_host(self.index, cuda_driver.gpu_count())
        return mine

    @cached_property
    def timed_on(self) -> list[int]:
        return [processor for core in timed_cores(self._share) for processor in core]

    @cached_property
    def wide_on(self) -> list[int]:
        return [processor for core in self._share for processor in core if processor not in self.timed_on] if self.timed_on else []

    def take_processors(self) -> None:
        if self.wide_on:
            with contextlib.suppress(OSError):  # a container that does not allow these processors
                os.sched_setaffinity(0, self.wide_on)

    @property
    def place(self) -> str:
        return self.identity.uuid

    def begin(self) -> None:
        def context() -> None:
            with contextlib.suppress(CudaError):  # `open` gives the reason
                cuda_driver.use_primary_context(self.index)

        self._beginning = [threading.Thread(target=work, daemon=True) for work in (context, lambda: self._compiler)]
        for thread in self._beginning:
            thread.start()

    def early(self, role: str) -> bool:
        return role != "builder"

    def open(self) -> None:
        import torch

        for thread in self._beginning:
            thread.join()
        if self.facts.uuid != self.identity.uuid:
            raise DeviceError(f"{self.name} is a different GPU for CUDA than for NVML: set CUDA_VISIBLE_DEVICES to its UUID, {self.facts.uuid}")
        if not torch.cuda.is_available():
            raise DeviceError("this torch has no CUDA: install the CUDA build of torch")
        torch.cuda.set_device(self.index)
        torch.zeros(1, device=self.torch_device)  # creates the primary context through torch
        cuda_driver.use_primary_context(self.index)
        self._torch = torch
        self._flush: Any = None
        self._leader: Leader | None = None
        self._slowed: bool | None = None
        self._probe = torch.zeros(32, device=self.torch_device)
        self._waits: deque[int] = deque(maxlen=64)
        for _ in range(5):
            self.wait_ns()  # the first calls include loading the kernel
        threading.Thread(target=self._build_passes, daemon=True).start()

    def _build_passes(self) -> None:
        """Builds the judge's kernels once per data folder, which takes a few seconds. Until they are built, or if the build fails, PyTorch operators
        compare the outputs."""
        from verifier.passes import native  # imports torch, which a device does without until it is opened

        nvcc = find_nvcc()
        library = native.build(self.data_dir / "native", nvcc, self.identity.arch) if nvcc else None
        if library is not None:
            native.use(native.Passes(library))
        if nvcc and self.facts.capability >= cuda_exchanges.CAPABILITY:
            native.build(self.data_dir / "native", nvcc, self.identity.arch, native.EXCHANGES)

    @cached_property
    def _compiler(self) -> str:
        return nvcc_version()

    def environment(self) -> Environment:
        from verifier.report import Environment  # the device is opened before pydantic is imported

        torch = self._torch
        return Environment(
            device=self.name,
            device_name=self.facts.name,
            device_model=self.facts.model,
            torch=torch.__version__,
            python=platform.python_version(),
            compiler=self._compiler or "none",
            cuda=torch.version.cuda,
            driver=self.nvml.driver_version(),
            capability="{}.{}".format(*self.facts.capability),
        )

    def allocate(self, nbytes: int) -> Arena:
        return arena(nbytes, self.torch_device)

    polling_seconds = 0.05
    process_bytes = 700 << 20  # a context, torch's kernels and the clock's scratch buffer

    def adopt_thread(self) -> None:
        self._torch.cuda.set_device(self.index)
        cuda_driver.use_primary_context(self.index)

    def sync(self) -> None:
        self._torch.cuda.synchronize(self.index)

    def wait_ns(self) -> int:
        """Returns the longer of two waits. After a pause, a kernel runs immediately even if another process is active, because that process's time
        slice ended long ago. By then the other process's work has started its time slice, and the second kernel must wait for that slice to end."""
        return max(self._one_wait_ns(), self._one_wait_ns())

    def _one_wait_ns(self) -> int:
        begin = time.monotonic_ns()
        self._probe.add_(1)
        self.sync()
        return time.monotonic_ns() - begin

    def rests(self) -> bool:
        return self.wait_ns() < max(RESTING * (self.usual_wait_ns() or 0), RESTING_NS)

    def learn_wait(self) -> None:
        if self.rehearsal is not None:
            self.rehearsal.join()
        self._waits.append(self.wait_ns())

    def usual_wait_ns(self) -> int | None:
        return min(int(statistics.median(self._waits)), MOST_USUAL_NS) if self._waits else None

    def free_bytes(self) -> int | None:
        try:
            self.sync()
            self._torch.cuda.empty_cache()
            return cuda_driver.free_memory()[0]
        except RuntimeError:
            return None  # `check` reports what is wrong

    def short(self, need: int) -> bool:
        try:
            return cuda_driver.free_memory()[0] < need
        except CudaError:
            return False  # `check` reports what is wrong

    def total_bytes(self) -> int | None:
        try:
            return cuda_driver.free_memory()[1]
        except CudaError:
            return None

    def trim(self, need: int = 0) -> None:
        """Releases memory only if it is scarce, because the memory must be mapped again at the next call; mapping took half of the time of all
        calls."""
        torch = self._torch
        free, total = cuda_driver.free_memory()
        if free < max(SHORT * total, need) and torch.cuda.memory_reserved(self.index) - torch.cuda.memory_allocated(self.index) > KEPT_BYTES:
            torch.cuda.empty_cache()

    def leader(self) -> Leader | None:
        if self._leader is None:
            self._leader = Leader(Native(self.clock).on_cuda(cuda_driver.use_primary_context(self.index)), spins=True)
        return self._leader if self._leader.works else None

    def flush_caches(self) -> None:
        """Writes three times the size of the L2 cache and waits. This evicts everything that a party left there. (The party's clock does the same
        just before a call, in its own context; otherwise, a context switch within the interval would be charged to the program.)"""
        if self._flush is None:
            self._flush = self._torch.empty(self._flush_bytes, dtype=self._torch.uint8, device=self.torch_device)
        try:
            cuda_driver.call("cuCtxResetPersistingL2Cache")
        except CudaError:
            pass  # before Ampere, no lines persist
        self._flush.zero_()
        self.sync()

    def ceiling(self, precision: str) -> Ceiling:
        rates = _RATES.get(self.facts.capability)
        rate = None if rates is None else {"fp32-strict": rates[0], "tf32": rates[1]}.get(precision, rates[2])
        flops = rate * self.facts.multiprocessors * self.facts.clock_hz if rate else None
        return Ceiling(self.facts.bandwidth, flops, "data sheet, from the driver's attributes")

    def reached(self) -> dict[str, float]:
        """Returns the rates for this GPU. The first judge measures them in half a second and stores them in the data folder."""
        path = self.data_dir / "native" / f"rates-{self.facts.model}-{self.facts.uuid[-12:]}.json"
        found = cuda_rates.kept(path)
        if not found:
            try:
                found = cuda_rates.rates(self._torch, self.torch_device, self.free_bytes() or 0, self.facts.l2_bytes)
            except RuntimeError:
                return {}  # `check` reports what is wrong
            if found.get("stream_gbs", 0.0) > cuda_rates.BELIEVABLE * (self.facts.bandwidth or 0.0) / 1e9:
                cuda_rates.keep(path, found)
        nvcc = find_nvcc()
        if not found or not nvcc or self.facts.capability < cuda_exchanges.CAPABILITY:
            return found
        return found | cuda_exchanges.known(self.data_dir / "native", nvcc, self.facts, self.torch_device)

    def config(self) -> dict[str, Any]:
        return {
            "kind": "cuda", "clock": _CLOCK, "clock_host": str(self.clock), "flush_bytes": self._flush_bytes,
        }  # fmt: skip

    def binds(self, role: str) -> list[Bind]:
        if role == "builder":
            return toolkit_binds()
        driver = driver_folder()
        minor = self.nvml.minor()
        own = f"/dev/nvidia{self.index if minor is None else minor}"
        binds = [Bind(own, own, device=True)]
        binds += [Bind(node, node, device=True, optional=True) for node in _NODES]
        binds += [Bind(str(self.clock), _CLOCK)]
        binds += [Bind(driver, driver, optional=True)] if driver else []
        return binds + [Bind("/sys", "/sys", optional=True)] + toolkit_binds()  # Triton assembles with ptxas; torch.compile links with gcc

    def variables(self, role: str) -> dict[str, str]:
        variables = {"STITCH_CUDA_ARCH": self.identity.arch, "TORCH_CUDA_ARCH_LIST": "{}.{}".format(*self.identity.capability)}
        nvcc = find_nvcc()
        if nvcc:
            variables["CUDA_HOME"] = str(Path(nvcc).resolve().parents[1])
            variables["PATH"] = f"{Path(nvcc).parent}:{Path(nvcc).resolve().parent}:/usr/local/bin:/usr/bin:/bin"
        if role != "builder":
            # The party sees only its own GPU, as cuda:0. Triton and torch.compile keep their caches in the party's private /tmp.
            threads = min(max(len(self.wide_on), 4), MOST_COMPILERS)
            variables |= {"CUDA_VISIBLE_DEVICES": self.identity.uuid, "CUDA_MODULE_LOADING": "LAZY", "TORCHINDUCTOR_COMPILE_THREADS": str(threads)}
            driver = driver_folder()
            if driver:
                variables |= {"LD_LIBRARY_PATH": driver, "TRITON_LIBCUDA_PATH": driver}
        return variables

    def check(self) -> str:
        """Runs a canary kernel with a known answer, and checks that enough memory is free."""
        torch = self._torch
        try:
            probe = torch.arange(1024, dtype=torch.int64, device=self.torch_device)
            if int(probe.sum()) != 1024 * 1023 // 2:
                return f"{self.name} computed a wrong sum: the GPU must be examined"
            self.allocate(4096).close()  # the kind of memory that parties map
            self._torch.cuda.empty_cache()
            free_bytes, _ = cuda_driver.free_memory()
        except DeviceError as error:
            return f"{self.name}: {error}"
        except RuntimeError as error:
            self.lost = True
            cause = str(error).splitlines()[0][:200]
            return f"{self.name} does not answer ({cause}): the judge is started again; if this persists, the GPU or its driver has failed"
        if free_bytes < MINIMUM_FREE:
            return f"{self.name} has {free_bytes / 2**30:.1f} GiB free: other processes hold its memory (see nvidia-smi)"
        return ""

    def missing_compiler(self) -> str:
        if not find_nvcc():
            return "nvcc is not installed: CUDA C++ programs cannot be built (install the CUDA toolkit; Triton programs run without it)"
        return "" if shutil.which("g++") else "g++ is not installed, and nvcc needs it: apt-get install g++"

    def sample_clocks(self) -> None:
        reasons = self.nvml.throttle_reasons()
        if reasons is not None:
            self._slowed = bool(self._slowed) or bool(reasons & Nvml.SLOWING)

    def throttled(self) -> bool | None:
        slowed, self._slowed = self._slowed, None
        return slowed

    def close(self) -> None:
        self._flush = None
        self._torch.cuda.empty_cache()


def timed_cores(share: list[list[int]]) -> list[list[int]]:
    """Chooses cores with a total of four processors, on which all parties of this GPU are timed. All sides of a block use the same processor, and the
    next block uses the next processor, because a processor can be slow for as long as a measurement takes. On the busy host of an H200, when the
    scheduler chose among the four for each side, one of 31 intervals reported at least 1.62x for a vision transformer compared with itself. Whole
    cores are chosen, because work on one thread of a core slows the other thread. Returns an empty list if there are too few processors to choose
    from."""
    if sum(map(len, share)) < FEWEST:
        return []
    first = at_least(share, APART)
    return share[first : first + at_least(share[first:], TIMED)]


def at_least(share: list[list[int]], processors: int) -> int:
    """Returns how many cores, counted from the first, together have this number of processors."""
    return next(count for count in range(len(share) + 1) if sum(map(len, share[:count])) >= processors)


def share_of_host(index: int, gpus: int) -> list[list[int]]:
    """Returns the cores that belong to the GPU with this number if all `gpus` get an equal share."""
    each = len(CORES) // max(gpus, 1)
    return CORES[index * each : (index + 1) * each]


def find_nvcc() -> str:
    """Returns the compiler's path, or ""."""
    return shutil.which("nvcc") or next(
        (p for p in ("/usr/local/cuda/bin/nvcc", *sorted(glob.glob("/usr/local/cuda-*/bin/nvcc"))) if os.path.exists(p)), ""
    )


def nvcc_version() -> str:
    """Returns a version such as "nvcc 13.0.88", or "" if it is unknown."""
    nvcc = find_nvcc()
    if not nvcc:
        return ""
    done = subprocess.run([nvcc, "--version"], capture_output=True, text=True, timeout=30)
    match = re.search(r"\bV(\d+(?:\.\d+)+)", done.stdout)
    return f"nvcc {match[1]}" if match else "nvcc"


def toolkit_binds() -> list[Bind]:
    """Returns the CUDA folder if it is outside /usr, which every party can see."""
    nvcc = find_nvcc()
    root = str(Path(nvcc).resolve().parents[1]) if nvcc else ""
    return [Bind(root, root)] if root and not root.startswith("/usr/") else []


def driver_folder() -> str:
    """Returns the folder from which libcuda.so.1 was loaded, or "" if it was not loaded."""
    cuda_driver.library()
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return ""
    match = re.search(r"(/\S+)/libcuda\.so", maps)
    return match[1] if match else ""
