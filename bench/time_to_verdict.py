"""Measures the time to verdict from a cold start, and that of KernelBench's own `eval_kernel_against_ref` in the same run.

    python bench/time_to_verdict.py --device cuda:0 --kernelbench CHECKOUT --out bench/results/verifier-time-to-verdict.json

There are three comparisons over the same kernel (the project's targets in brackets):

    load_inline   KernelBench's evaluation of a `load_inline` program, and `python -m verifier check --tier quick` of the same program [4x]
    raw           the same kernel as a raw-kernel program here, through `load_inline` there [10x]
    warm          a changed raw-kernel program on a verifier that has judged the task before [3 s]

`seconds` is the time until the process has ended, and `said_after` is the time until its verdict is printed; the targets apply to `seconds`. Every
run is a new process (except for `warm`), every repetition has a source that was never compiled, and every build cache is empty; KernelBench gets a
fresh extensions folder and one architecture. The verifier's precompiled header for bindings, which is built once per host (`python -m verifier
prepare`), already exists. The time to build it is recorded as `prepare_seconds`, and `first_on_host` is a `load_inline` program without this header.
The result is written after each run, and recorded runs are not repeated. Without --kernelbench, only our own times are measured; --device cpu is for
trial runs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

from verifier.client import Verifier  # noqa: E402
from verifier.jobs import VerifyJob  # noqa: E402

HELPER = (ROOT / "verifier/build/inline_helper.py").read_text()
LIMIT = 150  # time limit of one run in seconds

TASK = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return a + b


def get_inputs():
    return [torch.randn(1024, 4096), torch.randn(1024, 4096)]


def get_init_inputs():
    return []
"""
# The kernel and its launch are the same in both forms. `NUMBER` makes each repetition a different source.
KERNEL = """
// repetition NUMBER
__global__ void elementwise_add_NUMBER(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out, int size) {
    int index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index < size) {
        out[index] = a[index] + b[index];
    }
}
"""
CUDA_INLINE = (
    '''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = """
#include <torch/extension.h>
#include <cuda_runtime.h>
'''
    + KERNEL
    + '''
torch::Tensor elementwise_add_cuda(torch::Tensor a, torch::Tensor b) {
    auto size = a.numel();
    auto out = torch::empty_like(a);
    elementwise_add_NUMBER<<<(size + 255) / 256, 256>>>(a.data_ptr<float>(), b.data_ptr<float>(), out.data_ptr<float>(), size);
    return out;
}
"""
cpp_source = "torch::Tensor elementwise_add_cuda(torch::Tensor a, torch::Tensor b);"
extension = load_inline(name="elementwise_add_NUMBER", cpp_sources=cpp_source, cuda_sources=cuda_source, functions=["elementwise_add_cuda"])


class ModelNew(nn.Module):
    def forward(self, a, b):
        return extension.elementwise_add_cuda(a, b)
'''
)
CUDA_RAW = (
    "import ctypes\nimport torch\nimport torch.nn as nn\n\n"
    + HELPER
    + '\nSOURCE = r"""'
    + KERNEL
    + '''
extern "C" void elementwise_add(const float* a, const float* b, float* out, int size, cudaStream_t stream) {
    elementwise_add_NUMBER<<<(size + 255) / 256, 256, 0, stream>>>(a, b, out, size);
}
"""
library = stitch_build("cuda", SOURCE)
POINTER = ctypes.c_void_p


class ModelNew(nn.Module):
    def forward(self, a, b):
        out = torch.empty_like(a)
        stream = POINTER(torch.cuda.current_stream().cuda_stream)
        library.elementwise_add(POINTER(a.data_ptr()), POINTER(b.data_ptr()), POINTER(out.data_ptr()), ctypes.c_int(a.numel()), stream)
        return out
'''
)
CPU_INLINE = '''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
torch::Tensor elementwise_add_NUMBER(torch::Tensor a, torch::Tensor b) {
    auto out = torch::empty_like(a);
    const float *x = a.data_ptr<float>(), *y = b.data_ptr<float>();
    float* z = out.data_ptr<float>();
    at::parallel_for(0, a.numel(), 4096, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i++) z[i] = x[i] + y[i];
    });
    return out;
}
"""
extension = load_inline(name="elementwise_add_NUMBER", cpp_sources=source, functions=["elementwise_add_NUMBER"])


class ModelNew(nn.Module):
    def forward(self, a, b):
        return extension.elementwise_add_NUMBER(a, b)
'''
CPU_RAW = (
    "import ctypes\nimport torch\nimport torch.nn as nn\n\n"
    + HELPER
    + '''
SOURCE = r"""
// repetition NUMBER
extern "C" void elementwise_add(const float* a, const float* b, float* out, long size) {
    #pragma omp parallel for
    for (long i = 0; i < size; i++) out[i] = a[i] + b[i];
}
"""
library = stitch_build("cpp", SOURCE)
POINTER = ctypes.c_void_p


class ModelNew(nn.Module):
    def forward(self, a, b):
        out = torch.empty_like(a)
        library.elementwise_add(POINTER(a.data_ptr()), POINTER(b.data_ptr()), POINTER(out.data_ptr()), ctypes.c_long(a.numel()))
        return out
'''
)


class Run:
    """One series, whose result is stored on disk."""

    def __init__(self, arguments: argparse.Namespace):
        self.device: str = arguments.device
        self.kernelbench: Path | None = arguments.kernelbench
        self.out: Path = arguments.out
        self.cuda = self.device != "cpu"
        self.scratch = Path(tempfile.mkdtemp(prefix="time-to-verdict-"))
        self.stamp = int(time.time()) % 1_000_000  # makes names differ from those of every earlier series
        (self.scratch / "task.py").write_text(TASK)
        try:
            self.result: dict[str, Any] = json.loads(self.out.read_text())
        except (OSError, ValueError):
            self.result = {"device": self.device, "runs": []}

    def save(self) -> None:
        self.out.parent.mkdir(parents=True, exist_ok=True)
        self.result["summary"] = self.summary()
        scratch = self.out.with_suffix(".new")
        scratch.write_text(json.dumps(self.result, indent=1) + "\n")
        os.replace(scratch, self.out)

    def source(self, form: str, number: int) -> str:
        texts = {"load_inline": CUDA_INLINE, "raw": CUDA_RAW} if self.cuda else {"load_inline": CPU_INLINE, "raw": CPU_RAW}
        return texts[form].replace("NUMBER", f"{self.stamp}{number:02d}")

    def has(self, name: str, number: int) -> bool:
        return any(run["name"] == name and run["number"] == number for run in self.result["runs"])

    def add(self, name: str, number: int, seconds: float, **more: Any) -> None:
        self.result["runs"].append({"name": name, "number": number, "seconds": round(seconds, 3), **more})
        self.save()
        print(f"{name} {number}: {seconds:.2f} s {more.get('status', more.get('correct', ''))} {more.get('stages', '')}", flush=True)

    # The timed commands

    def prepare(self, data: Path) -> None:
        begin = time.monotonic()
        command = [sys.executable, "-m", "verifier", "prepare", "--device", self.device, "--data-dir", str(data), "--plain"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT)
        self.result["prepare_seconds"] = round(time.monotonic() - begin, 3)
        self.result["prepare"] = done.stdout.strip() or done.stderr.strip()[-500:]
        print(f"prepare: {self.result['prepare_seconds']} s: {self.result['prepare']}", flush=True)

    def check(self, name: str, form: str, number: int, data: Path) -> None:
        """Runs the command line in a new process with an empty build cache."""
        if self.has(name, number):
            return
        program = self.scratch / f"{name}{number}.py"
        program.write_text(self.source(form, number + (50 if name == "first_on_host" else 0)))
        shutil.rmtree(data / "builds", ignore_errors=True)
        command = [sys.executable, "-m", "verifier", "check", str(self.scratch / "task.py"), str(program), "--device", self.device]
        done = timed([*command, "--json", "--data-dir", str(data)])
        try:
            printed = json.loads(done.output)
            report = printed.get("report") or printed
        except ValueError:
            self.add(name, number, done.seconds, status="failed", detail=(done.errors or done.output)[-800:])
            return
        self.add(name, number, done.seconds, said_after=done.said_after, **told(report))

    def kernelbench_check(self, number: int) -> None:
        """Runs the same `load_inline` program through KernelBench in a new process with an empty extensions folder."""
        if self.kernelbench is None or self.has("kernelbench", number):
            return
        program = self.scratch / f"kernelbench{number}.py"
        program.write_text(self.source("load_inline", number))
        folder = self.scratch / f"extensions{number}"
        variables = {**os.environ, "TORCH_EXTENSIONS_DIR": str(folder), "CUDA_VISIBLE_DEVICES": self.device.partition(":")[2] or "0"}
        variables["TORCH_CUDA_ARCH_LIST"] = arch_list(self.device)
        answer = self.scratch / f"kernelbench{number}.json"
        command = [sys.executable, "bench/kernelbench_eval.py", "--kernelbench", str(self.kernelbench), "--out", str(answer)]
        done = timed([*command, f"{self.scratch / 'task.py'}={program}"], variables)
        try:
            found = json.loads(answer.read_text())["results"][0]
        except (OSError, ValueError, LookupError):
            found = {"correct": False, "detail": done.errors[-800:]}
        self.add(
            "kernelbench",
            number,
            done.seconds,
            said_after=done.said_after,
            **{key: found[key] for key in ("compiled", "correct", "runtime_ms", "detail") if key in found},
        )

    async def warm(self, data: Path, repeats: int) -> None:
        if self.has("warm", repeats):
            return
        verifier = Verifier(self.device, data, spares=4)
        try:
            for number in range(repeats + 1):
                job = VerifyJob(task_source=TASK, program_source=self.source("raw", 80 + number))
                begin = time.monotonic()
                result = await asyncio.wait_for(verifier.run(job), LIMIT)
                seconds = time.monotonic() - begin
                more = told(result.report.model_dump(mode="json")) if result.report else {"status": "failed", "detail": result.error}
                self.add("warm" if number else "warm_first", number, seconds, **more)
                await asyncio.sleep(3)  # lets spare processes start, as they do between the programs of a search
        finally:
            await verifier.close()

    # The results

    def summary(self) -> dict[str, Any]:
        times: dict[str, list[float]] = {}
        for run in self.result["runs"]:
            if run.get("status", "passed") == "passed" and run.get("correct", True):
                times.setdefault(run["name"], []).append(run["seconds"])
        medians = {name: round(statistics.median(values), 2) for name, values in times.items()}
        summary: dict[str, Any] = {"median_seconds": medians, "worst_seconds": {name: max(values) for name, values in times.items()}}
        said: dict[str, list[float]] = {}
        for run in self.result["runs"]:
            if run.get("said_after") and run.get("status", "passed") == "passed" and run.get("correct", True):
                said.setdefault(run["name"], []).append(run["said_after"])
        summary["median_said_after"] = {name: round(statistics.median(values), 2) for name, values in said.items()}
        for kind, found in (("times_faster", medians), ("times_sooner", summary["median_said_after"])):
            for name in ("load_inline", "raw", "first_on_host"):
                if name in found and found.get("kernelbench"):
                    summary[f"{name}_{kind}"] = round(found["kernelbench"] / found[name], 2)
        return summary


@dataclass
class Done:
    seconds: float  # until the process has ended
    said_after: float  # until the end of its standard output, which is the verdict
    output: str
    errors: str


def timed(command: list[str], variables: dict[str, str] | None = None) -> Done:
    """Times a process from its start to its verdict and to its end. Raises `subprocess.TimeoutExpired` after `LIMIT` seconds."""
    with tempfile.TemporaryFile() as errors:
        begin = time.monotonic()
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, env=variables)
        guard = threading.Timer(LIMIT, process.kill)
        guard.start()
        said_after, parts = 0.0, []
        while part := os.read(process.stdout.fileno(), 1 << 20):
            said_after = time.monotonic() - begin
            parts.append(part)
        process.wait()
        seconds = time.monotonic() - begin
        guard.cancel()
        errors.seek(0)
        text = errors.read().decode(errors="replace")
    if seconds >= LIMIT:
        raise subprocess.TimeoutExpired(command, LIMIT)
    return Done(seconds, round(said_after, 3), b"".join(parts).decode(errors="replace"), text)


def told(report: dict[str, Any]) -> dict[str, Any]:
    """Returns the parts of a report that are recorded with a time."""
    build = report.get("build") or {}
    return {
        "status": report["status"],
        "message": report["message"][:300],
        "class": report["program_class"],
        "stages": {stage["name"]: stage["seconds"] for stage in report["stages"]},
        "startup": next((stage["detail"] for stage in report["stages"] if stage["name"] == "startup"), ""),
        "build_seconds": build.get("seconds"),
        "cached": build.get("cached"),
        "notes": build.get("notes", []),
        "resources": build.get("resources", []),
    }


def arch_list(device: str) -> str:
    from verifier.devices import cuda_driver

    major, minor = cuda_driver.facts(int(device.partition(":")[2] or "0")).capability
    return f"{major}.{minor}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--kernelbench", type=Path, metavar="CHECKOUT")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=ROOT / "bench/results/verifier-time-to-verdict.json")
    arguments = parser.parse_args()
    run = Run(arguments)
    if run.cuda:
        from verifier.devices import cuda_driver

        run.result["gpu"] = cuda_driver.facts(int(run.device.partition(":")[2] or "0")).name
    data = run.scratch / "data"
    bare = run.scratch / "bare"
    try:
        run.prepare(data)
        for number in range(1, arguments.repeats + 1):
            run.kernelbench_check(number)
            run.check("load_inline", "load_inline", number, data)
            run.check("raw", "raw", number, data)
        asyncio.run(run.warm(data, arguments.repeats))
        run.check("first_on_host", "load_inline", 1, bare)
        run.save()
    finally:
        shutil.rmtree(run.scratch, ignore_errors=True)
    print(json.dumps(run.result["summary"], indent=1))
    failed = [entry for entry in run.result["runs"] if entry.get("status", "passed") != "passed" or entry.get("correct") is False]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
