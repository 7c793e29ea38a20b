"""A program that exhausts a resource gets the right verdict and leaves nothing behind, and the next job runs. These tests run without the static
stage."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from verifier_bench import PROGRAM, TASK, Bench, forward

from tests.verifier_data import prepared
from verifier.jobs import AdmitJob
from verifier.limits import GIB, Limits

ROOT = Path(__file__).resolve().parents[3]
LIMITS = Limits(load=20, inputs=10, call=4, admission=8, build=60, quick_timing=0.3, memory=2 * GIB, temporary=64 << 20, output_flood=4 << 20)


@pytest.fixture(scope="module")
def strict(tmp_path_factory):
    bench = Bench(tmp_path_factory.mktemp("exhaustion"), limits=LIMITS, without_static=True)
    yield bench
    bench.close()


def with_forward(lines: str) -> str:
    indented = "\n        ".join(lines.splitlines())
    return PROGRAM.replace("return torch.softmax", f"{indented}\n        return torch.softmax")


def ends(strict, lines: str, status: str, because: str) -> None:
    report = strict.verify(with_forward(lines))
    assert (report.status, because in report.message) == (status, True), report.message
    assert strict.verify(PROGRAM.replace("dim=-1", "dim=0")).status == "wrong_result"


@pytest.mark.parametrize("folder", ["/tmp", "/dev/shm"])
def test_a_full_disk(strict, folder):
    ends(strict, f"with open('{folder}/fill', 'wb') as file:\n    while True:\n        file.write(bytes(1 << 20))", "crashed", "No space left")


def test_a_flood_of_output(strict):
    ends(strict, "import os\nwhile True:\n    os.write(1, bytes(1 << 16))", "crashed", "printed more than 4 MiB")


def test_too_many_open_files(strict):
    ends(strict, "kept = []\nwhile True:\n    kept.append(open('/dev/null'))", "crashed", "Too many open files")


def test_too_many_threads(strict):
    lines = "import threading, time\nwhile True:\n    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    report = strict.verify(with_forward(lines))
    assert report.status in ("crashed", "timed_out"), report.message  # because of the thread limit, or of the clock on a slow machine


def test_a_daemon_does_not_outlive_its_party(strict):
    mark = f"stitch-daemon-{uuid.uuid4().hex}"
    lines = f"""import os, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv(sys.executable, ['{mark}', '-c', 'import time; time.sleep(300)'])
    os._exit(0)
raise ValueError('left')"""
    report = strict.verify(with_forward(lines))
    assert report.status == "crashed" and "left" in report.message
    deadline = time.monotonic() + 10
    while (alive := with_mark(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert alive == []


def with_mark(mark: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_text(errors="replace").startswith(mark):
                found.append(path.parent.name)
        except OSError:
            continue
    return found


@pytest.mark.timed
def test_a_program_that_burns_the_processor_while_others_are_timed(strict):
    spin = "import threading\n\n\ndef spin():\n    a = torch.ones(8)\n    while True:\n        a.add_(0)\n\n\nclass ModelNew"
    started = "threading.Thread(target=spin, daemon=True).start()\n        self.scale = nn"
    program = PROGRAM.replace("class ModelNew", spin).replace("self.scale = nn", started)
    report = strict.verify(program)
    assert report.status == "rejected" and "of a processor" in report.message, (report.status, report.message)
    assert [finding.rule for finding in report.findings if finding.source == "runtime"].count("burns-cpu") == 2
    assert report.timing is None


@pytest.mark.slow
def test_so_does_a_child_process(strict):
    child = "import os\nif not hasattr(self, 'child'):\n    self.child = os.fork()\n    if self.child == 0:\n        while True: pass"
    report = strict.verify_once(with_forward(child))
    # On a machine with few processors, the clocks disagree before the share is large enough. The program never passes.
    assert report.status in ("rejected", "inconclusive"), (report.status, report.message)
    assert report.timing is None


@pytest.mark.slow
def test_an_admission_has_a_time_for_all_of_it(strict):
    result = strict.run(AdmitJob(task_source=forward("import time\ntime.sleep(2.5)\nreturn x * 2")))
    assert result.error == "" and not result.admission.ok
    assert "together took more than 8 s" in result.admission.problems[0].message
    assert strict.run(AdmitJob(task_source=TASK)).admission.ok


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_short_series_of_verifications(tmp_path):
    """Runs bench/robustness.py with four of its faulty programs: every verdict is as expected, and nothing is left behind. A busy machine does not
    count as a failure."""
    out = tmp_path / "series.json"
    command = [sys.executable, str(ROOT / "bench" / "robustness.py"), "--device", "cpu", "--count", "8", "--every", "2", "--out", str(out)]
    command += ["--data-dir", str(prepared(tmp_path / "data"))]
    done = subprocess.run([*command, "--limit-seconds", "600"], capture_output=True, text=True, timeout=850, env={**os.environ, "PYTHONPATH": ""})
    assert out.exists(), done.stderr
    found = json.loads(out.read_text())
    wrong = [run for run in found["runs"] if not run["right"] and run["got"] != "inconclusive"]
    assert wrong == [] and len(found["runs"]) == 8, done.stdout
    assert found["summary"]["processes_left"] == 0 and found["summary"]["judge_deaths"] == 0
