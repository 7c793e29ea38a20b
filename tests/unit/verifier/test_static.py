from __future__ import annotations

import ast
from pathlib import Path

import pytest

from verifier.integrity.static import inspect_source

ROOT = Path(__file__).resolve().parents[3]


def refused(source: str) -> list[str]:
    return [finding.rule for finding in inspect_source(ast.parse(source), source) if finding.severity == "refuse"]


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("import base64\nexec(base64.b64decode('eA=='))", "obfuscation"),
        ("exec(''.join(chr(c) for c in [112]))", "obfuscation"),
        ("import pickle\nrun = pickle.loads(b'x')", "obfuscation"),
        ("import os\nos.system('ls')", "process-control"),
        ("from subprocess import run\nrun(['ls'])", "process-control"),
        ("import sys\nsys._getframe()", "frames"),
        ("import gc\nseen = gc.get_stats()", "frames"),
        ("import gc\nseen = getattr(gc, 'get_' + 'objects')()", "obfuscation"),
        ("import sys\nrole = sys.modules['verifier.role']", "harness"),
        ("import verifier.correctness", "harness"),
        ("def f(e):\n    return e.__traceback__.tb_frame", "frames"),
        ("open('/proc/self/maps')", "proc"),
        ("import torch\ntorch.softmax = None", "patching"),
        ("import time\ntime.perf_counter = lambda: 0", "patching"),
        ("import torch.nn.functional as F\nsetattr(F, 'gelu', None)", "patching"),
        ("import urllib.request", "download"),
    ],
)
def test_the_hard_tier(line, rule):
    assert refused(line) == [rule]


@pytest.mark.parametrize(
    "line",
    [
        "class A:\n    pass  # os.system, exec, sys._getframe",
        "import torch\ntorch.backends.cudnn.benchmark = True",
        "import ctypes\nlib = ctypes.CDLL('x')\nlib.run.restype = None",
        "import torch\nmodel = object()\nmodel.eval()",
        "import time\nstart = time.perf_counter()",
        "import gc\ngc.collect()\ngc.freeze()",
        "import os\nfolder = getattr(os, 'sep', '/')",
    ],
)
def test_what_is_lawful(line):
    assert refused(line) == []


def test_the_embedded_helper_is_recognised_but_a_changed_one_is_not():
    helper = (ROOT / "verifier/build/inline_helper.py").read_text()
    assert refused(helper + "\nx = 1\n") == []
    assert refused(helper.replace("capture_output=True", "capture_output=False")) == ["process-control"]


def test_a_library_call_in_native_code_is_noted_with_its_line():
    source = 'K = r"""\nextern "C" void f() {\n  cblas_sgemm();\n}\n"""\n'
    notes = [(finding.rule, finding.line) for finding in inspect_source(ast.parse(source), source)]
    assert ("library-in-kernel", 3) in notes
