"""A verifier with limits so small that a hang costs only seconds, and the sources that the tests submit to it."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

from forked import ForkingPool, Nursery, forked_device

from tests.verifier_data import prepared
from verifier.build.headers import Headers
from verifier.client import Verifier
from verifier.devices.opening import open_device
from verifier.jobs import AdmitJob, Job, JobResult, VerifyJob
from verifier.judge.judge import Judge
from verifier.limits import GIB, Limits

LIMITS = Limits(load=20, inputs=10, call=6, build=60, quick_timing=0.3, full_timing=1, memory=2 * GIB)
ATTEMPTS = 4
PLANTED = "stitch-planted-secret-7f3a91"
HELPER = Path("verifier/build/inline_helper.py")

TASK = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return torch.softmax(x, dim=-1) * self.scale


def get_inputs():
    return [torch.rand(64, 512)]


def get_init_inputs():
    return [512]
"""
PROGRAM = TASK.replace("class Model", "class ModelNew")

# Values after a normalisation without an offset have mean zero, so the second layer's averages are rounding noise. The program folds the first
# layer's scale and shift, so its noise differs.
NOISY_TASK = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.BatchNorm2d(16)
        self.conv = nn.Conv2d(16, 24, 1, bias=False)
        self.second = nn.BatchNorm2d(24)

    def forward(self, x):
        return self.second(self.conv(self.first(x)))


def get_inputs():
    return [torch.randn(8, 16, 12, 12) + 0.5]


def get_init_inputs():
    return []
"""
FOLDED = """def folded(bn, x):
    with torch.no_grad():
        mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3), unbiased=False)
        bn.running_mean.lerp_(mean, bn.momentum)
        bn.running_var.lerp_(x.var((0, 2, 3)), bn.momentum)
        bn.num_batches_tracked += 1
        scale = bn.weight / torch.sqrt(var + bn.eps)
        shift = bn.bias - mean * scale
        return x * scale[:, None, None] + shift[:, None, None]


class ModelNew("""
NOISY_PROGRAM = NOISY_TASK.replace("class Model(", FOLDED).replace("self.first(x)", "folded(self.first, x)")


class Bench:
    """Runs jobs on one event loop, in a prepared data directory. `options` are those of the verifier."""

    def __init__(self, folder: Path, limits: Limits = LIMITS, **options):
        self.loop = asyncio.new_event_loop()
        self.verifier = Verifier("cpu", prepared(folder), limits=limits, **{"spares": 2} | options)

    def close(self) -> None:
        self.wait(self.verifier.close())
        self.loop.close()

    def wait(self, coroutine):
        return self.loop.run_until_complete(asyncio.wait_for(coroutine, 200))

    def run(self, job: Job, on_stage=None) -> JobResult:
        return self.wait(self.verifier.run(job, on_stage))

    def admit(self, source: str):
        result = self.run(AdmitJob(task_source=source))
        assert result.error == ""
        return result.admission

    def verify(self, program: str, task: str = TASK, **options):
        """Returns the report. If other work on the machine made the verdict inconclusive, it is requested again with fresh seeds, as in workflows
        (agents/workflows/measuring.py): a test that requires `passed` still accepts nothing else."""
        for _ in range(ATTEMPTS - 1):
            report = self.verify_once(program, task, **options)
            if report.status != "inconclusive":
                return report
            print(f"asked again: {report.message}")
        return self.verify_once(program, task, **options)

    def verify_once(self, program: str, task: str = TASK, **options):
        result = self.run(VerifyJob(task_source=task, program_source=program, **options))
        assert result.error == ""
        return result.report


class Quick(Bench):
    """Runs jobs in this process with forked parties, so that no judge has to start. Only for trusted sources whose verdict does not depend on
    timing."""

    def __init__(self, folder: Path, nursery: Nursery):
        device = open_device("cpu", prepared(folder))
        forked_device(device)
        headers = Headers(folder)
        limits = dataclasses.replace(LIMITS, memory=8 * GIB)
        self.pool = ForkingPool(device, limits, nursery, [headers.bind])
        self.judge = Judge(folder, None, self.pool, headers)

    def run(self, job: Job, on_stage=None) -> JobResult:
        return self.judge._run(job, on_stage or (lambda event: None))

    def close(self) -> None:
        self.judge.close()


def forward(body: str, head: str = "") -> str:
    """Returns a task whose forward has `body`, which begins on line 7 (after the lines of `head`)."""
    lines = "\n".join("        " + line for line in body.splitlines())
    return (
        f"import torch\nimport torch.nn as nn\n{head}\n\nclass Model(nn.Module):\n    def forward(self, x):\n{lines}\n\n\n"
        "def get_inputs():\n    return [torch.rand(8, 8)]\n\n\ndef get_init_inputs():\n    return []\n"
    )


def built(kernel: str, call: str) -> str:
    """Returns a program with the build helper, one C++ source and a forward."""
    root = Path(__file__).resolve().parents[3]
    return (
        "import ctypes\nimport torch\nimport torch.nn as nn\n\n"
        + (root / HELPER).read_text()
        + f'\nSOURCE = r"""\n{kernel}\n"""\nlib = stitch_build("cpp", SOURCE)\n\n\nclass ModelNew(nn.Module):\n'
        + "    def __init__(self, size):\n        super().__init__()\n        self.scale = nn.Parameter(torch.ones(size))\n\n"
        + f"    def forward(self, x):\n        {call}\n"
    )
