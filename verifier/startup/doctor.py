"""Reports what this host can do, what is missing, and how to get it: `python -m verifier doctor [--json]`."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from verifier.confinement import cgroup, landlock, seccomp
from verifier.confinement.layers import protection
from verifier.confinement.probe import probe
from verifier.devices import cuda_driver
from verifier.devices.base import Device, DeviceError
from verifier.devices.cuda import CudaDevice, nvcc_version
from verifier.devices.opening import open_device
from verifier.profiling.nsight.ncu import find_ncu
from verifier.profiling.nsight.nsys import find_nsys
from verifier.profiling.sanitizing.sanitizers import find_compute_sanitizer
from verifier.report import Protection
from verifier.startup import cutlass


class Lack(BaseModel):
    message: str
    hint: str = ""


class DeviceHealth(BaseModel):
    """The state of one device. `model` is the key by which measurements are compared; figures that were not measured are null."""

    device: str
    ready: bool
    name: str = ""
    model: str = ""
    problems: list[Lack] = []
    figures: dict[str, float] = {}  # bandwidth_gbs, fp32_gflops, threads or multiprocessors, l2_bytes, memory_bytes, free_bytes


class Tool(BaseModel):
    """A tool. `needed` means that, without it, nothing can be verified on the device named in `needed_for`."""

    name: str
    found: bool
    version: str = ""
    needed_for: str = ""
    hint: str = ""
    needed: bool = False


class Doctor(BaseModel):
    """The report, in a stable format: fields are added, never removed. The flat facts describe the requested device or, without a request, the first
    ready device, GPU before CPU."""

    version: int = 1
    devices: list[DeviceHealth]
    tools: list[Tool]
    protection: Protection
    kernel: dict[str, Any]  # landlock, cgroup, seccomp
    figures: dict[str, float] = {}
    python: str
    torch: str
    cuda: str = ""
    driver: str = ""
    capability: str = ""  # compute capability of a GPU, "9.0"
    compiler: str = ""
    threads: int

    def as_json(self) -> dict[str, Any]:
        """Returns the model and, for web pages, also the tools as checks and the figures in flat form."""
        data = self.model_dump()
        data["checks"] = [
            {"name": t.name, "ok": t.found, "found": t.version, "fix": t.hint if not t.found else "", "needed": t.needed, "for": t.needed_for}
            for t in self.tools
        ]
        return {**self.figures, **data}


def examine(data_dir: Path, device: str | None = None) -> Doctor:
    """Examines everything. It opens the devices, so call it in a separate process. `device` limits it to one."""
    import torch

    names = [device] if device else ["cpu", *(f"cuda:{index}" for index in range(cuda_driver.gpu_count()))]
    if not device and cuda_driver.driver() is None:
        names.append("cuda:0")  # listed as missing
    opened: list[tuple[DeviceHealth, Device | None]] = [_health(name, data_dir) for name in names]
    first = next((pair for pair in reversed(opened) if pair[0].ready), opened[0])
    environment = first[1].environment() if first[1] is not None else None
    result = Doctor(
        devices=[health for health, _ in opened],
        tools=tools(),
        protection=protection(),
        kernel={
            "landlock_abi": landlock.abi() or None,
            "cgroup": cgroup.version() or None,
            "seccomp": seccomp.supported(),
            "release": platform.release(),
        },
        figures=first[0].figures,
        python=platform.python_version(),
        torch=torch.__version__,
        cuda=torch.version.cuda or "",
        driver=(environment.driver or "") if environment else "",
        capability=(environment.capability or "") if environment else "",
        compiler=environment.compiler if environment else "",
        threads=len(os.sched_getaffinity(0)),
    )
    for _, handle in opened:
        if handle is not None:
            handle.close()
    return result


def _health(name: str, data_dir: Path) -> tuple[DeviceHealth, Device | None]:
    try:
        device = open_device(name, data_dir)
    except DeviceError as error:
        hint = "" if name == "cpu" else "install the NVIDIA driver and the CUDA build of torch; CPU runs work without"
        return DeviceHealth(device=name, ready=False, problems=[Lack(message=str(error), hint=hint)]), None
    environment = device.environment()
    problems = [Lack(message=text) for text in (device.check(), device.missing_compiler()) if text]
    health = DeviceHealth(
        device=device.name,
        ready=not device.check(),
        name=environment.device_name,
        model=environment.device_model,
        problems=problems,
        figures=_figures(device),
    )
    return health, device


def _figures(device: Device) -> dict[str, float]:
    ceiling = device.ceiling("fp32-strict")
    figures: dict[str, float] = {}
    if ceiling.bytes_per_second:
        figures["bandwidth_gbs"] = round(ceiling.bytes_per_second / 1e9, 2)
    if ceiling.flops_per_second:
        figures["fp32_gflops"] = figures["gflops"] = round(ceiling.flops_per_second / 1e9, 1)
    if isinstance(device, CudaDevice):
        facts = device.facts
        free, total = cuda_driver.free_memory()
        figures |= {
            "multiprocessors": facts.multiprocessors,
            "l2_bytes": facts.l2_bytes,
            "clock_mhz": round(facts.clock_hz / 1e6),
            "memory_bytes": total,
            "free_bytes": free,
        }
        figures |= device.reached()
    else:
        figures |= {"threads": len(os.sched_getaffinity(0)), **memory_of_host()}
    return figures


def tools() -> list[Tool]:
    gcc = _version(["g++", "-dumpfullversion"])
    nvcc = nvcc_version()
    nsys, why = find_nsys()
    bwrap = _version(["bwrap", "--version"])
    works = bool(probe().path)
    ninja = _version(["ninja", "--version"])
    ncu, no_ncu = find_ncu()
    sanitizer, no_sanitizer = find_compute_sanitizer()
    return [
        Tool(name="g++", found=bool(gcc), version=gcc, needed_for="CPU programs, and nvcc", hint="apt-get install g++", needed=True),
        Tool(
            name="OpenMP",
            found=bool(gcc) and _has_openmp(),
            needed_for="CPU programs on more than one thread",
            hint="apt-get install libgomp1 (it comes with g++)",
        ),
        Tool(
            name="bubblewrap",
            found=works,
            version=bwrap,
            needed_for="confining submitted programs",
            hint=probe().why,
            needed=True,
        ),
        Tool(name="nvcc", found=bool(nvcc), version=nvcc.removeprefix("nvcc "), needed_for="CUDA C++ programs", hint="install the CUDA toolkit"),
        Tool(
            name="NVRTC",
            found=_has_library("libnvrtc.so.13", "libnvrtc.so.12") or _has_module("nvidia.cuda_nvrtc"),
            needed_for="CUDA C++ compiled at run time",
            hint="comes with the CUDA toolkit and with the CUDA build of torch",
        ),
        Tool(
            name="NVIDIA driver",
            found=cuda_driver.driver() is not None,
            version=(f"CUDA {cuda_driver.driver_cuda_version()}" if cuda_driver.driver() is not None else ""),
            needed_for="any GPU",
            hint=cuda_driver.why_no_driver(),
        ),
        Tool(
            name="nsys",
            found=nsys is not None and not why,
            version=nsys.version if nsys else "",
            needed_for="timelines of GPU runs (without it: CUPTI through torch.profiler)",
            hint=why,
        ),
        Tool(
            name="ncu",
            found=ncu is not None,
            version=ncu.version if ncu else "",
            needed_for="counters per kernel (without it: figures from the compiled code)",
            hint=no_ncu,
        ),
        Tool(
            name="compute-sanitizer",
            found=sanitizer is not None,
            version=sanitizer.version if sanitizer else "",
            needed_for="invalid accesses and races in CUDA kernels, on request",
            hint=no_sanitizer,
        ),
        Tool(name="Triton", found=_has_module("triton"), version=_package_version("triton"), needed_for="Triton programs", hint="pip install triton"),
        Tool(
            name="CUTLASS",
            found=bool(cutlass.found()),
            version=cutlass.version(),
            needed_for="CUDA C++ programs that include its headers (cutlass/, cute/)",
            hint=cutlass.INSTALL,
        ),
        Tool(
            name="CuTe DSL",
            found=bool(_package_version("nvidia-cutlass-dsl")),
            version=_package_version("nvidia-cutlass-dsl"),
            needed_for="programs that import cutlass.cute",
            hint="pip install nvidia-cutlass-dsl",
        ),
        Tool(
            name="ninja",
            found=bool(ninja),
            version=ninja,
            needed_for="load_inline",
            hint="pip install ninja",
        ),
    ]


def memory_of_host() -> dict[str, float]:
    """Returns total and available bytes."""
    found = {}
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            key, _, rest = line.partition(":")
            if key in ("MemTotal", "MemAvailable"):
                found[{"MemTotal": "memory_bytes", "MemAvailable": "free_bytes"}[key]] = float(int(rest.split()[0]) * 1024)
    except (OSError, ValueError):
        pass
    return found


def _version(command: list[str]) -> str:
    if shutil.which(command[0]) is None:
        return ""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return ""
    match = re.search(r"\d+(?:\.\d+)+", done.stdout + done.stderr)
    return match[0] if match else ""


def _has_openmp() -> bool:
    done = subprocess.run(
        ["g++", "-fopenmp", "-x", "c++", "-E", "-o", os.devnull, "-"], input="#include <omp.h>\n", capture_output=True, text=True, timeout=20
    )
    return done.returncode == 0


def _has_library(*sonames: str) -> bool:
    for soname in sonames:
        try:
            ctypes.CDLL(soname)
            return True
        except OSError:
            continue
    return False


def _has_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _package_version(name: str) -> str:
    import importlib.metadata

    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def in_words(doctor: Doctor) -> str:
    """Formats the report for a terminal."""
    lines = [f"Python {doctor.python}, torch {doctor.torch}, {doctor.threads} threads"]
    for device in doctor.devices:
        state = "ready" if device.ready else "not ready"
        detail = device.name if device.ready else device.problems[0].message if device.problems else ""
        lines.append(f"{device.device}: {state}{': ' + detail if detail else ''}")
        lines += [f"    {lack.message}" + (f" ({lack.hint})" if lack.hint else "") for lack in device.problems[0 if device.ready else 1 :]]
        lines += [f"    {name} {value:g}" for name, value in device.figures.items()]
    lines.append("tools:")
    for tool in doctor.tools:
        tail = (tool.version or "yes") if tool.found else f"missing, for {tool.needed_for}" + (f": {tool.hint}" if tool.hint else "")
        lines.append(f"    {tool.name}: {tail}")
    lines.append(f"sandbox: {doctor.protection.sandbox}")
    lines += [f"    + {layer}" for layer in doctor.protection.layers] + [f"    - {layer}" for layer in doctor.protection.missing]
    lines.append("kernel: " + ", ".join(f"{key} {value}" for key, value in doctor.kernel.items()))
    return "\n".join(lines)


def main(as_json: bool, device: str | None = None, data_dir: Path | None = None) -> int:
    """Runs the command line. Returns exit status 0 if at least one device is ready."""
    doctor = examine(data_dir or Path(os.environ.get("DATA_DIR", ".data")) / "verifier", device)
    print(json.dumps(doctor.as_json(), indent=2) if as_json else in_words(doctor))
    return 0 if any(health.ready for health in doctor.devices) else 2
