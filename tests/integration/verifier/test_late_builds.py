"""Programs that compile on first use: the judge builds what they request, and they start over with the result."""

from __future__ import annotations

import pytest
from verifier_bench import HELPER, TASK, Quick

from verifier.judge.endings import Ended
from verifier.judge.evaluation import Evaluation

RAW = (
    "import ctypes\nimport torch\nimport torch.nn as nn\n\n"
    + HELPER.read_text()
    + '''
KERNEL = """
#include <cmath>
#include <cstdint>
extern "C" void softmax(const float* x, const float* s, float* y, int64_t rows) {
    for (int64_t r = 0; r < rows; r++) {
        float most = x[r * SIZE], sum = 0;
        for (int64_t i = 0; i < SIZE; i++) most = std::fmax(most, x[r * SIZE + i]);
        for (int64_t i = 0; i < SIZE; i++) sum += y[r * SIZE + i] = std::exp(x[r * SIZE + i] - most);
        for (int64_t i = 0; i < SIZE; i++) y[r * SIZE + i] *= s[i] / sum;
    }
}
"""
found = {}


def kernel(size):
    if size not in found:
        try:
            found[size] = stitch_build("cpp", KERNEL, FLAGS)
        except Exception:
            found[size] = None
    return found[size]


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))
        # constructor

    def forward(self, x):
        if (library := kernel(x.shape[-1])) is None:
            return torch.softmax(x, dim=-1) * self.scale
        y = torch.empty_like(x)
        rows = ctypes.c_int64(x.numel() // x.shape[-1])
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in (x.contiguous(), self.scale, y)]
        library.softmax(*pointers, rows)
        return y
'''
)
SIZED = 'f"-DSIZE={size}",'


def raw(flags: str = SIZED, constructor: str = "") -> str:
    return RAW.replace("FLAGS)", f"[{flags}])").replace("# constructor", constructor)


VARIANTS = TASK + "\n\ndef get_input_variants():\n    return [[torch.rand(3, 512)], [torch.rand(2, 5, 512)]]\n"
BY_SHAPE = raw('f"-DSIZE={size}", f"-DROWS={rows}",').replace("kernel(size)", "kernel(size, rows)").replace("found[size]", "found[size, rows]")
BY_SHAPE = BY_SHAPE.replace("size not in found", "(size, rows) not in found").replace("kernel(x.shape[-1])", "kernel(x.shape[-1], x.shape[0])")
# The binding is written by hand, because torch's headers would take a minute to compile.
BOUND = """#include <Python.h>
#include <cmath>
#include "sizes.h"
static PyObject* softmax(PyObject*, PyObject* args) {
    unsigned long long px, ps, py; long long rows;
    if (!PyArg_ParseTuple(args, "KKKL", &px, &ps, &py, &rows)) return nullptr;
    const float *x = (const float*)px, *s = (const float*)ps; float* y = (float*)py;
    for (long long r = 0; r < rows; r++, x += SIZE, y += SIZE) {
        float most = x[0], sum = 0;
        for (int i = 0; i < SIZE; i++) most = std::fmax(most, x[i]);
        for (int i = 0; i < SIZE; i++) sum += y[i] = std::exp(x[i] - most);
        for (int i = 0; i < SIZE; i++) y[i] *= s[i] / sum;
    }
    Py_RETURN_NONE;
}
static PyMethodDef methods[] = {{"softmax", softmax, METH_VARARGS, ""}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "k", "", -1, methods};
#define NAMED(n) PyInit_##n
#define INIT(n) NAMED(n)
PyMODINIT_FUNC INIT(TORCH_EXTENSION_NAME)(void) { return PyModule_Create(&module); }
"""
MODEL = f'''import os
import tempfile
from pathlib import Path

import ninja
import torch
import torch.nn as nn
from torch.utils import cpp_extension
from torch.utils.cpp_extension import load, load_inline

os.environ["PATH"] = ninja.BIN_DIR + os.pathsep + os.environ["PATH"]
BOUND = r"""{BOUND}"""


class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, kernels):
        y = torch.empty_like(x)
        kernels.softmax(x.data_ptr(), scale.data_ptr(), y.data_ptr(), x.numel() // x.shape[-1])
        ctx.save_for_backward(x, scale)
        return y

    @staticmethod
    def backward(ctx, grad):
        x, scale = ctx.saved_tensors
        kernels, y, ones = BACKWARD, torch.empty_like(x), torch.ones_like(scale)
        kernels.softmax(x.data_ptr(), ones.data_ptr(), y.data_ptr(), x.numel() // x.shape[-1])
        scaled = grad * scale
        return y * (scaled - (scaled * y).sum(-1, keepdim=True)), (grad * y).reshape(-1, x.shape[-1]).sum(0), None


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))
        self.kernels = FORWARD

    def forward(self, x):
        return Softmax.apply(x.contiguous(), self.scale, self.kernels)
'''
OUT = """

def written(size):
    folder = Path(tempfile.mkdtemp())
    (folder / "sizes.h").write_text(f"#define SIZE {size}")
    (folder / "k.cpp").write_text(BOUND)
    return folder


def out_of_files(size):
    folder = written(size)
    return load(name=f"from_files_{os.getpid()}", sources=[str(folder / "k.cpp")], extra_cflags=["-O2"], build_directory=str(folder))


def out_of_text(size):
    include = {"extra_include_paths": [str(written(size))]}
    return load_inline("late_softmax", BOUND, extra_cflags=["-O1"], no_implicit_headers=True, **include)


def out_of_the_module(size):
    os.environ["TORCH_CUDA_ARCH_LIST"] = "9.0a"
    directory = str(written(size))
    return cpp_extension.load_inline(name="late", cpp_sources=[BOUND], no_implicit_headers=True, verbose=True, build_directory=directory)
"""


def model(forward: str, backward: str = "None") -> str:
    return MODEL.replace("FORWARD", forward).replace("BACKWARD", backward) + OUT


@pytest.fixture
def tried(quick: Quick, monkeypatch):
    """Judges programs up to the timing stage."""

    def stop(self, trials):
        raise Ended("inconclusive", "tried, and not timed")

    monkeypatch.setattr(Evaluation, "_time", stop)
    return quick


@pytest.mark.parametrize("constructor", ["", "kernel(size)"], ids=["first forward", "constructor"])
def test_a_kernel_that_is_compiled_when_it_is_first_used_is_tried_with_its_library(tried: Quick, constructor):
    report = tried.verify_once(raw(constructor=constructor))
    assert report.trials and all(trial.ok for trial in report.trials), report.message
    requests = report.build.requests
    assert [(one.kind, one.when, one.failure) for one in requests] == [("stitch_build", "construct" if constructor else "call", "")]
    assert raw(constructor=constructor).splitlines()[requests[0].line - 1].strip().startswith("found[size] = stitch_build")
    again = tried.verify_once(raw(constructor=constructor))
    assert again.build.cached and [one.sha256 for one in again.build.requests] == [requests[0].sha256]


def test_each_shape_may_have_a_library_of_its_own(tried: Quick):
    report = tried.verify_once(BY_SHAPE, VARIANTS)
    assert all(trial.ok for trial in report.trials), report.message
    assert len(report.build.requests) == 3


def test_more_than_eight_are_refused_with_what_to_do(tried: Quick):
    report = tried.verify_once(raw('f"-DSIZE={size}", f"-DRANDOM={id(object())}{__import__(\'time\').time_ns()}",'))
    assert report.status == "build_failed" and len(report.build.requests) == 8
    assert "its build number 9 after it was imported, and may ask for 8: 8 of them were 'a raw cpp library' too" in report.message
    assert "a time, an address or other random text" in report.message


def test_a_later_source_is_read_as_the_programs_own_text(tried: Quick):
    hidden = raw().replace('stitch_build("cpp", KERNEL', 'stitch_build("cpp", KERNEL + "int mpro" + "tect(void*, unsigned long, int);"')
    report = tried.verify_once(hidden)
    assert report.status == "rejected" and "assembled when it was called: native code names mprotect" in report.message
    assert report.message.startswith("line ")


def test_a_later_source_that_does_not_compile_is_the_compilers_word(tried: Quick):
    wrong = raw().replace("sum = 0;", "sum = nought;").replace("except Exception:", "except ZeroDivisionError:")
    report = tried.verify_once(wrong)
    assert report.status == "build_failed" and "nought" in report.message and report.problems
    assert "nought" in wrong.splitlines()[report.problems[0].line - 1]


def test_a_program_that_knows_another_way_goes_on(tried: Quick):
    report = tried.verify_once(raw().replace("sum = 0;", "sum = nought;"))
    assert all(trial.ok for trial in report.trials) and report.trials
    assert any(finding.rule == "build-fails" and "nought" in finding.message for finding in report.findings)
    assert "nought" in report.build.requests[0].failure


@pytest.mark.parametrize("way", ["out_of_files", "out_of_text"])
def test_torchs_own_functions_with_files_that_the_program_writes(tried: Quick, way):
    """The program writes to folders whose names differ in each process."""
    report = tried.verify_once(model(f"{way}(size)"))
    assert report.trials and all(trial.ok for trial in report.trials), report.message
    assert [(one.kind, one.when) for one in report.build.requests] == [("load" if way == "out_of_files" else "load_inline", "construct")]


def test_a_build_in_the_gradient(tried: Quick):
    report = tried.verify_once(model("out_of_text(size)", "out_of_the_module(x.shape[-1])"), backward=True)
    assert report.trials and all(trial.ok for trial in report.trials), report.message
    assert [(one.name, one.when) for one in report.build.requests] == [("late_softmax", "construct"), ("late", "call")]


def test_the_same_twice_at_import(tried: Quick):
    """The program builds the same extension under two names, because two getters may request it."""
    twice = 'load_inline("once", BOUND, no_implicit_headers=True, extra_include_paths=[str(written(512))])'
    source = model("EARLY[1]") + f"\nEARLY = [{twice}, {twice.replace('once', 'again')}, {twice}]\n"
    report = tried.verify_once(source)
    assert report.trials and all(trial.ok for trial in report.trials), report.message
    assert [one.when for one in report.build.requests] == ["import"]


def test_a_file_that_did_not_come_along(tried: Quick):
    report = tried.verify_once(model('load(name="k", sources=[str(Path(__file__).parent / "csrc" / "k.cpp")])'))
    assert report.status == "build_failed" and "csrc/k.cpp, which is not there: a program is one source file" in report.message
    assert report.message.startswith("line ")


def test_a_verdict_on_such_a_program(quick: Quick):
    """The program is observed in the form in which it was timed, and its library counts as its own code."""
    report = quick.verify(raw())
    assert report.status == "passed" and report.program_class == "custom", report.message
    assert not any(finding.rule == "no-kernel" for finding in report.findings)


def test_what_is_asked_for_while_it_is_timed_is_tried_first(quick: Quick):
    late = raw().replace("found = {}", "found, calls = {}, []")
    late = late.replace("    if size not in", "    calls.append(1)\n    if len(calls) > 14 and size not in")
    late = late.replace("return found[size]", "return found.get(size)")
    report = quick.verify(late)
    assert report.status == "passed" and [one.when for one in report.build.requests] == ["call"], report.message
    assert [trial.name for trial in report.trials].count("task inputs 1") == 1


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("import cupy", "ModuleNotFoundError: No module named 'cupy'; the verifier's host has no such package: install it there beside torch"),
        ("TEXT = (Path(__file__).parent / 'kernel.cu').read_text()", "comes without other files: keep texts that it reads in the program itself"),
    ],
)
def test_what_a_program_misses_on_this_host_is_said_with_what_to_do(tried: Quick, line, says):
    report = tried.verify_once(model("None").replace("BOUND = ", f"{line}\nBOUND = ", 1))
    assert report.status == "build_failed" and report.message.startswith("the program cannot be imported: line ") and says in report.message
