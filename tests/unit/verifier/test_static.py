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
        ("import os\nos._exit(0)", "process-control"),
        ("import torch\ntorch._dynamo.optimize = None", "patching"),
        ("from subprocess import run\nrun(['ls'])", "process-control"),
        ("import sys\nsys._getframe()", "frames"),
        ("import gc\nseen = gc.get_stats()", "frames"),
        ("import gc\nseen = getattr(gc, 'get_' + 'objects')()", "obfuscation"),
        ("import sys\nrole = sys.modules['verifier.parties.role']", "harness"),
        ("import verifier.correctness.bounds", "harness"),
        ("def f(e):\n    return e.__traceback__.tb_frame", "frames"),
        ("open('/proc/self/maps')", "proc"),
        ("import torch\ntorch.softmax = None", "patching"),
        ("import time\ntime.perf_counter = lambda: 0", "patching"),
        ("import ctypes\nctypes.pythonapi.PyCapsule_GetPointer = print", "patching"),
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
        "import ctypes\nctypes.pythonapi.PyCapsule_GetPointer.restype = ctypes.c_void_p",
        "import os\nimport sys\nsys.stdout = open(os.devnull, 'w')",
        "import torch\nmodel = object()\nmodel.eval()",
        "import time\nstart = time.perf_counter()",
        "import gc\ngc.collect()\ngc.freeze()",
        "import os\nfolder = getattr(os, 'sep', '/')",
        "import torch.utils.cpp_extension as cpp\ncpp.CUDA_HOME = '/usr/local/cuda'",
        "from torch.utils import cpp_extension as cpp\ncpp.COMMON_NVCC_FLAGS = ['-O3']",
        "import torch\ntorch._dynamo.config.cache_size_limit = 64",
        "import torch._inductor.config as inductor\ninductor.coordinate_descent_tuning = True",
        "import sys\nif __name__ == '__main__':\n    sys.exit(main())",
    ],
)
def test_what_is_lawful(line):
    assert refused(line) == []


GUARD = "if __name__ == '__main__':\n"
PROFILED = "import subprocess\ndef profile():\n    subprocess.run(['ncu'])\ndef main():\n    profile()\n"


@pytest.mark.parametrize(
    "source",
    [
        GUARD + "    import subprocess\n    subprocess.run(['ncu', __file__])",
        GUARD + "    import torch\n    torch.softmax = None",
        PROFILED + GUARD + "    main()",
    ],
)
def test_what_only_a_script_runs_is_noted(source):
    found = [finding for finding in inspect_source(ast.parse(source), source) if finding.rule in ("process-control", "patching")]
    assert [finding.severity for finding in found] == ["note"] and "started as a script" in found[0].message


@pytest.mark.parametrize(
    "source",
    [
        PROFILED + GUARD + "    main()\nmain()",  # used elsewhere too
        PROFILED,  # used nowhere: something else may call it
        PROFILED + "CALLS = ['main']\n" + GUARD + "    main()",
        PROFILED + "__name__ = '__main__'\n" + GUARD + "    main()",
        PROFILED + "globals().update({'__na' + 'me__': '__main__'})\n" + GUARD + "    main()",
        PROFILED + "import runpy\nrunpy.run_path(__file__, run_name='__main__')\n" + GUARD + "    main()",
        PROFILED + "exec(open(__file__).read())\n" + GUARD + "    main()",
        PROFILED + "import sys\ngetattr(sys.modules[__name__], 'ma' + 'in')()\n" + GUARD + "    main()",
        PROFILED + "main.__globals__['__na' + 'me__'] = '__main__'\n" + GUARD + "    main()",
        PROFILED + "import sys\nobject.__setattr__(sys.modules[main.__module__], '__na' + 'me__', '__main__')\n" + GUARD + "    main()",
        PROFILED + "import operator\noperator.methodcaller('__set' + 'attr__', '__na' + 'me__', '__main__')(here)\n" + GUARD + "    main()",
        PROFILED + "from unittest import mock\nmock.patch.multiple(here, **{'__na' + 'me__': '__main__'}).start()\n" + GUARD + "    main()",
        PROFILED + "import types\ntypes.FunctionType(compile(TEXT, '', 'exec'), {'__na' + 'me__': '__main__'})()\n" + GUARD + "    main()",
        PROFILED + "if __name__ != '__main__':\n    main()",
    ],
)
def test_what_may_run_without_a_script_is_refused(source):
    assert "process-control" in refused(source)


@pytest.mark.parametrize("call", ["import subprocess\nsubprocess.check_call(['nvcc', 'k.cu'])", "import os\nos.system('git clone x')"])
def test_a_program_that_starts_a_compiler_is_told_what_to_do(call):
    message = next(finding.message for finding in inspect_source(ast.parse(call), call) if finding.severity == "refuse")
    assert "must not start processes: give the source to torch.utils.cpp_extension.load_inline" in message and "CUTLASS's headers" in message


@pytest.mark.parametrize(
    "text",
    [
        "@cute.kernel\ndef k(x):\n    pass",
        "@triton.jit\ndef k(x):\n    pass",
        'C = "torch::Tensor f(torch::Tensor x) { return x; }"',
        'C = "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}"',
        'C = ".visible .entry k() { ret; }"',
        'C = "__global__ void k() {}"',
    ],
)
def test_kernels_in_whatever_language(text):
    assert "no-kernel" not in [finding.rule for finding in inspect_source(ast.parse(text), text)]
    assert "no-kernel" in [finding.rule for finding in inspect_source(ast.parse("x = 1"), "x = 1")]


def test_the_embedded_helper_is_recognised_but_a_changed_one_is_not():
    helper = (ROOT / "verifier/build/inline_helper.py").read_text()
    assert refused(helper + "\nx = 1\n") == []
    assert refused(helper.replace("capture_output=True", "capture_output=False")) == ["process-control"]


def test_a_library_call_in_native_code_is_noted_with_its_line():
    source = 'K = r"""\nextern "C" void f() {\n  cblas_sgemm();\n}\n"""\n'
    notes = [(finding.rule, finding.line) for finding in inspect_source(ast.parse(source), source)]
    assert ("library-in-kernel", 3) in notes


NATIVE = 'K = r"""\n#include <pthread.h>\nextern "C" void f() {\n  // mprotect is only named here\n  %s;\n}\n"""\n'


@pytest.mark.parametrize("call", ["mprotect(p, 4096, 3)", "dl_iterate_phdr(f, 0)", "ptrace(0, 0, 0, 0)", "process_vm_writev(1, a, 1, b, 1, 0)"])
def test_native_code_that_reaches_into_other_code(call):
    source = NATIVE % call
    found = [(finding.rule, finding.severity, finding.line) for finding in inspect_source(ast.parse(source), source) if finding.rule == "tampering"]
    assert found == [("tampering", "refuse", 5)]


@pytest.mark.parametrize(
    "call",
    ["fork()", "if (!::fork()) g()", "return vfork()", "int child = fork()", "if (0 > fork()) g()", 'std::system("x")', 'FILE* f = popen("x", "r")',
     "posix_spawn(&p, f, 0, 0, a, e)", "syscall(SYS_clone3, a, b)", "if (a) execv(p, a); else execl(p, a, 0)"],
)  # fmt: skip
def test_native_code_that_starts_processes(call):
    source = NATIVE % call
    found = {(finding.rule, finding.line) for finding in inspect_source(ast.parse(source), source) if finding.severity == "refuse"}
    assert found == {("process-control", 5)}


LAMBDA = "auto fork = [&] { go(); };\n  fork()"
OWN = "(void)0;\n}\nstatic int system(int a) {\n  return system(a)"


@pytest.mark.parametrize("call", ["table.system(3)", "p->fork()", "int system = 3", "exit(1)", "own_system(1)", OWN, LAMBDA])
def test_native_code_whose_names_are_its_own(call):
    assert refused(NATIVE % call) == []


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("import torch\nf = getattr(torch.ops.aten, 'm' + 'm')", "dynamic-name"),
        ("import os\nos.dup2(1, 3)", "descriptor"),
        ("import torch\ntorch._C._autograd._profiler_enabled", "senses"),
        ("import torch\ntorch._C._autograd._profiler_type()", "senses"),
        (NATIVE % "pthread_create(&t, 0, w, 0)", "threads"),
        (NATIVE % "value.accessPolicyWindow.hitRatio = 1", "l2-persist"),
    ],
)
def test_evidence_that_refuses_nothing(line, rule):
    assert rule in [finding.rule for finding in inspect_source(ast.parse(line), line)] and refused(line) == []


def test_a_comment_in_native_code_is_no_evidence():
    source = NATIVE % "g()"
    assert not {"tampering", "threads"} & {finding.rule for finding in inspect_source(ast.parse(source), source)}
