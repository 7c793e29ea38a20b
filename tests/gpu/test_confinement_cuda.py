"""From inside the sandbox of a GPU runner, only its own GPU's device nodes and no other party's memory are visible, and attempts that fail on the CPU
fail here too."""

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "integration" / "verifier"))
from probes import GROUPS, prober  # noqa: E402

from verifier.client import Verifier  # noqa: E402
from verifier.confinement.visible import bubblewrap  # noqa: E402
from verifier.devices import cuda_driver  # noqa: E402
from verifier.jobs import VerifyJob  # noqa: E402
from verifier.limits import GIB, Limits  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(cuda_driver.driver() is None, reason=f"no CUDA device: {cuda_driver.why_no_driver()}"),
    pytest.mark.skipif(not bubblewrap(), reason="bubblewrap is not installed"),
]
DEVICE = os.environ.get("STITCH_TEST_DEVICE", "cuda:0")
ROOT = Path(__file__).resolve().parents[2]
LIMITS = Limits(call=15, quick_timing=0.5, correctness=8, memory=8 * GIB)

TASK = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.rand(256, 1024)]


def get_init_inputs():
    return []
"""
PROGRAM = TASK.replace("class Model", "class ModelNew")

# Ends with an exception that carries the findings. `record` receives the handles that the judge gives to this runner.
SEEING = """import glob, json, os
import verifier.devices.cuda_driver as driver
given = []
genuine = driver.import_memory


def record(handle):
    pointer = genuine(handle)
    given.append((bytes(handle), pointer))
    return pointer


driver.import_memory = record


def look(x):
{body}
    raise ValueError("seen " + json.dumps(seen))
"""

NODES = """
seen = {"nodes": sorted(glob.glob("/dev/nvidia[0-9]*")), "count": torch.cuda.device_count(), "dev": sorted(os.listdir("/dev"))}
"""

# Changes each byte of its own handle in every possible way, as far as time allows: any handle that opens must refer to an allocation that this runner
# was given. Some bytes of a handle do not identify it, and a handle that differs only in those maps the same memory again at another address.
# Therefore the given memory is filled with marks that identify it.
HANDLES = """
import ctypes, random, time

def content(pointer, nbytes):
    return torch.as_tensor(driver.DeviceBytes(pointer, nbytes), device=x.device)

if not given:  # memory came by descriptors: any handle that is valid is where to begin
    block = driver.allocate(4 << 20)
    given.append((driver.export_memory(block), block))
marks = set()
for _, pointer in given:
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    driver.call("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(pointer))
    mark = os.urandom(16)
    marks.add(mark)
    content(base.value, size.value)[: size.value // 16 * 16].view(-1, 16).copy_(torch.tensor(list(mark), dtype=torch.uint8, device=x.device))
torch.cuda.synchronize()
pointers = {pointer for _, pointer in given}
foreign, again, tried = [], 0, 0
guesses = [(handle, at, change) for handle, _ in given[:2] for at in range(len(handle)) for change in range(1, 256)]
random.shuffle(guesses)
guesses += [(bytes(64), 0, 0), (bytes([255]) * 64, 0, 0), (os.urandom(64), 0, 0)]
end = time.monotonic() + 8
for handle, at, change in guesses[::-1]:
    if time.monotonic() > end or len(foreign) > 8:
        break
    guess = bytearray(handle)
    guess[at] ^= change
    tried += 1
    try:
        pointer = genuine(bytes(guess))
    except driver.CudaError:
        continue
    if pointer in pointers:
        continue
    found = bytes(content(pointer, 16).tolist())
    if any(found in mark * 2 for mark in marks):  # it may begin anywhere in a block
        again += 1
    else:
        foreign.append([at, change, hex(pointer), found.hex()])
    driver.close_memory(pointer)
seen = {"given": len(given), "tried": tried, "again": again, "foreign": foreign[:4]}
"""

# Fresh device memory must not contain what another party left there. Uses the driver's own calls, bypassing torch's allocator.
LEFTOVERS = """
block = driver.allocate(2 << 30)
memory = torch.as_tensor(driver.DeviceBytes(block, 2 << 30), device=x.device)
seen = {"nonzero": int(torch.count_nonzero(memory.view(torch.int64)))}
del memory
driver.free(block)
"""

PROCESSES = """
import ctypes
nvml = ctypes.CDLL("libnvidia-ml.so.1")
nvml.nvmlInit_v2()
handle, count = ctypes.c_void_p(), ctypes.c_uint()
nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
listed = []
for index in range(count.value):
    if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)):
        continue
    room = (ctypes.c_ubyte * (24 * 256))()
    number = ctypes.c_uint(256)
    if nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(number), room) == 0:
        listed += [int.from_bytes(bytes(room[24 * i : 24 * i + 4]), "little") for i in range(number.value)]
reachable = []
for pid in filter(None, listed):
    try:
        os.kill(pid, 0)
    except OSError:
        continue
    if pid not in (0, os.getpid()):
        reachable.append(pid)
seen = {"gpus": count.value, "listed": listed, "own": os.getpid(), "reachable": reachable, "visible": [p for p in listed if p != os.getpid() and os.path.exists(f"/proc/{p}")]}
"""  # noqa: E501


@pytest.fixture(scope="module")
def verify(tmp_path_factory):
    loop = asyncio.new_event_loop()
    verifier = Verifier(DEVICE, tmp_path_factory.mktemp("data"), limits=LIMITS, spares=3, without_static=True)

    def run(program: str):
        result = loop.run_until_complete(asyncio.wait_for(verifier.run(VerifyJob(task_source=TASK, program_source=program)), 120))
        assert result.report is not None, result.error
        return result.report

    run.verifier = verifier
    run.loop = loop
    yield run
    loop.run_until_complete(verifier.close())
    loop.close()


def seen(verify, body: str) -> dict:
    lines = "\n".join("    " + line for line in body.strip().splitlines())
    program = "import torch\n" + SEEING.replace("{body}", lines) + PROGRAM.replace("return torch.softmax", "look(x)\n        return torch.softmax")
    report = verify(program)
    found = re.search(r"seen (\{.*\})", report.message)
    assert found, f"{report.status}: {report.message}"
    return json.loads(found[1])


def test_an_honest_program_passes_under_every_layer(verify):
    report = verify(PROGRAM)
    assert report.status in ("passed", "inconclusive"), report.message
    text = " ".join([*report.protection.layers, *report.protection.missing])
    print(report.protection.model_dump_json())
    assert all(layer in text for layer in ("namespaces", "seccomp", "Landlock", "cgroup"))
    assert "refused the rules" not in text


def test_only_its_own_gpu_is_there(verify):
    found = seen(verify, NODES)
    assert found["count"] == 1
    assert len(found["nodes"]) == 1, found
    assert "mem" not in found["dev"] and "kmsg" not in found["dev"]


def test_no_other_allocation_opens_by_a_guessed_handle(verify):
    found = seen(verify, HANDLES)
    print(found)
    assert found["given"] >= 1 and found["foreign"] == [], found
    assert found["tried"] > 1000, found


def test_fresh_device_memory_is_empty(verify):
    assert seen(verify, LEFTOVERS)["nonzero"] == 0


def test_no_listed_process_can_be_seen_or_signalled(verify):
    found = seen(verify, PROCESSES)
    print(found)
    assert found["reachable"] == [] and found["visible"] == []


@pytest.mark.parametrize("group", sorted(GROUPS))
def test_nothing_that_a_program_tries_works_on_a_gpu(verify, group, tmp_path):
    verify.loop.run_until_complete(verify.verifier.ready())
    victim = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], env={**os.environ, "SECRET": "planted"})
    try:
        facts = {
            "port": 9,
            "abstract": "stitch-nobody",
            "path": str(tmp_path / "socket"),
            "marker": f"stitch-{os.getpid()}-{group}",
            "pids": [victim.pid, verify.verifier.judge_pid],
            "secret": "detnalp",
            "data": tempfile.gettempdir() + "/nowhere",
            "root": str(ROOT),
        }
        report = verify(prober(PROGRAM, group, facts))
        found = re.search(r"worked (\[.*\]), refused (\d+)", report.message)
        assert found, f"{report.status}: {report.message}"
        assert found[1] == "[]", found[1]
        assert int(found[2]) > 20
        assert victim.poll() is None
    finally:
        victim.kill()
        victim.wait()


def test_memory_is_given_back(verify):
    """After the verifier has ended, the GPU has as much free memory as before."""
    nvml = cuda_driver.Nvml(cuda_driver.facts(int(DEVICE.partition(":")[2] or 0)).uuid)
    free = nvml.free_bytes()
    if free is None:
        pytest.skip("NVML does not tell the free memory")
    hog = PROGRAM.replace("return torch", "self.kept = [torch.ones(1 << 28, device=x.device) for _ in range(4)]\n        return torch")
    assert verify(hog).status in ("passed", "inconclusive", "rejected")
    assert verify(PROGRAM.replace("dim=-1", "dim=0")).status == "wrong_result"
    after = nvml.free_bytes()
    assert after > free - GIB, f"{(free - after) / GIB:.2f} GiB are missing"
