"""A task and a program cannot reach anything outside the sandbox: no secret of the judge, no network, no file outside /tmp, no other process."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from verifier_bench import PLANTED, PROGRAM, TASK, forward

from verifier.confinement.visible import bubblewrap
from verifier.jobs import VerifyJob

wrapped = pytest.mark.skipif(not bubblewrap(), reason="bubblewrap is not installed: processes of this user are not hidden")

# Looks wherever a process can: its environment, every readable file of /proc, the usual places in the file system, its own objects. It raises an
# exception with its findings, so the verdict would show them.
SEARCH = f"""
import gc, glob, os
wanted = b"".join([{PLANTED[:12]!r}.encode(), {PLANTED[12:]!r}.encode()])
found = [name for name, value in os.environ.items() if wanted in value.encode()]
places = glob.glob("/proc/*/environ") + glob.glob("/proc/*/cmdline") + glob.glob("/proc/*/task/*/environ")
places += glob.glob("/root/**", recursive=True)[:500] + glob.glob("/home/**", recursive=True)[:500] + glob.glob("/tmp/**", recursive=True)[:500]
for place in places:
    try:
        with open(place, "rb") as file:
            if wanted in file.read(1 << 20):
                found.append(place)
    except OSError:
        pass
found += [type(item).__name__ for item in gc.get_objects() if isinstance(item, (str, bytes)) and {PLANTED[:12]!r} in str(item)[:200]
          and {PLANTED[12:]!r} in str(item)[:200]]
processes = [name for name in os.listdir("/proc") if name.isdigit()]
listing = f"found {{found}}, {{len(processes)}} processes"
"""


def raising(expression: str) -> str:
    return SEARCH.strip() + f"\nraise ValueError({expression})"


def test_the_judge_gets_no_secret(open_bench):
    open_bench.wait(open_bench.verifier.ready())
    environment = Path(f"/proc/{open_bench.verifier.judge_pid}/environ").read_bytes() if os.getuid() == 0 else b""
    assert PLANTED.encode() not in environment


@wrapped
def test_a_task_finds_no_secret_and_no_process(open_bench):
    problem = open_bench.admit(forward(raising("listing"))).problems[0]
    assert "found []" in problem.message, problem.message
    assert int(problem.message.split(" processes")[0].split()[-1]) <= 3


@wrapped
def test_a_program_finds_no_secret_and_no_process(open_bench):
    lines = raising("listing")
    program = PROGRAM.replace("return torch.softmax", "\n        ".join(lines.splitlines()) + "\n        return torch.softmax")
    report = open_bench.verify(program)
    assert report.status == "crashed" and "found []" in report.message, report.message


@wrapped
@pytest.mark.parametrize(
    "attempt",
    [
        "open('/usr/stitch-was-here', 'w')",
        "open('/opt/stitchwork/verifier/limits.py', 'a')",
        "__import__('socket').socket(2, 1)",
        "__import__('socket').socket(10, 2)",
        "os.unshare(0x10000000) if hasattr(os, 'unshare') else os.chroot('/tmp')",
        "os.mkdir(torch.__path__[0] + '/here')",
        "os.kill(1, 9) or os.kill(2, 0) or open('/etc/shadow')",
    ],
)
def test_a_program_cannot(bench, attempt):
    program = PROGRAM.replace("import torch\n", "import os\nimport torch\n", 1)
    program = program.replace("return torch.softmax", f"(lambda os: {attempt})(os)\n        return torch.softmax")
    program = program.replace("os.kill", "getattr(os, 'kill')")
    report = bench.verify(program)
    assert report.status in ("crashed", "rejected"), report.status
    assert report.timing is None


@wrapped
def test_a_process_that_a_party_starts_may_name_its_threads(bench):
    """The CUDA driver names its threads and fails to start if it is not allowed to, in which case torch.compile's own compilers would find no GPU."""
    body = (
        "import ctypes, os\n"
        "theirs, ours = os.pipe()\n"
        "libc = ctypes.CDLL(None)\n"
        "if libc.fork() == 0:\n"
        "    opened = libc.open(f'/proc/self/task/{os.getpid()}/comm'.encode(), os.O_WRONLY)\n"
        "    os.write(ours, b'named' if opened >= 0 and libc.write(opened, b'other', 5) == 5 else b'refused')\n"
        "    os._exit(0)\n"
        "raise ValueError(f'said {os.read(theirs, 200)}')"
    )
    assert "said b'named'" in bench.admit(forward(body)).problems[0].message


@wrapped
def test_the_repository_and_the_data_are_not_there(bench):
    root = str(Path(__file__).resolve().parents[3])
    body = (
        f"import os\nseen = [p for p in ('manage.py', 'verifier', '.git', 'tests') if os.path.exists(os.path.join({root!r}, p))]\n"
        "raise ValueError(str(seen))"
    )
    assert "[]" in bench.admit(forward(body)).problems[0].message


@pytest.mark.slow
def test_a_killed_runner_gives_a_verdict(bench):
    """After kill -9 in the middle of an evaluation, there is one retry and then a verdict, and the next job runs. (If the reference is killed, the
    verdict reports this, because it is not the program's fault.)"""
    slow = PROGRAM.replace("return torch", "import time; time.sleep(0.3)\n        return torch")
    killed = []

    def on_stage(event):
        if event.stage == "correctness" and event.status == "progress" and len(killed) < 1:
            killed.append(kill_newest_party(bench.verifier.judge_pid))

    result = bench.run(VerifyJob(task_source=TASK, program_source=slow), on_stage)
    assert killed and killed[0]
    assert result.report is not None and result.report.status in ("passed", "crashed", "inconclusive", "infrastructure_error")
    assert bench.verify_once(PROGRAM).status in ("passed", "inconclusive")


def test_a_killed_judge_is_started_again(bench):
    bench.wait(bench.verifier.ready())
    first = bench.verifier.judge_pid
    killed = []

    def on_stage(event):
        if not killed:
            killed.append(first)
            os.kill(first, signal.SIGKILL)

    result = bench.run(VerifyJob(task_source=TASK, program_source=PROGRAM), on_stage)
    assert result.report is not None and bench.verifier.judge_pid != first
    assert children(first) == []


@pytest.mark.slow
def test_cancelling_ends_the_job_and_the_next_one_runs(bench):
    endless = VerifyJob(task_source=TASK, program_source=PROGRAM.replace("return torch", "while True: pass\n        return torch"))

    async def cancelled():
        at_work = asyncio.Event()
        running = asyncio.ensure_future(bench.verifier.run(endless, lambda event: at_work.set() if event.stage == "correctness" else None))
        await asyncio.wait_for(at_work.wait(), 100)
        begin.append(time.monotonic())
        await asyncio.sleep(0.5)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    begin: list[float] = []
    bench.wait(cancelled())
    assert time.monotonic() - begin[0] < 16
    assert bench.verify_once(PROGRAM).status in ("passed", "inconclusive")


def test_nothing_is_left_when_the_client_is_killed(tmp_path):
    script = (
        "import asyncio, sys, time\nfrom verifier.client import Verifier\n"
        "async def main():\n    v = Verifier('cpu', sys.argv[1])\n    await v.ready()\n"
        "    print(v.judge_pid, flush=True)\n    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    root = str(Path(__file__).resolve().parents[3])
    client = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=root, env={**os.environ, "PYTHONPATH": root}
    )
    judge = int(client.stdout.readline())
    time.sleep(1)
    parties = children(judge)
    client.kill()
    client.wait()
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline and any(alive(pid) for pid in [judge, *parties]):
        time.sleep(0.1)
    assert parties and not any(alive(pid) for pid in [judge, *parties])


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def children(pid: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(path.parent.name))
    return sorted(found)


def kill_newest_party(judge: int | None) -> int:
    parties = children(judge) if judge else []
    if parties:
        os.kill(parties[-1], signal.SIGKILL)
    return parties[-1] if parties else 0
