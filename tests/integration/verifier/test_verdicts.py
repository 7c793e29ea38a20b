"""The verdicts that programs receive, and the reasons given."""

from __future__ import annotations

import pytest
from verifier_bench import NOISY_PROGRAM, NOISY_TASK, PROGRAM, TASK, built

KERNEL = """#include <cmath>
#include <cstdint>
extern "C" void run(const float* x, const float* scale, float* y, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* a = x + r * cols;
    float* b = y + r * cols;
    float m = a[0], s = 0;
    for (int64_t i = 0; i < cols; ++i) m = a[i] > m ? a[i] : m;
#pragma omp simd reduction(+ : s)
    for (int64_t i = 0; i < cols; ++i) { b[i] = std::exp(a[i] - m); s += b[i]; }
    for (int64_t i = 0; i < cols; ++i) b[i] = b[i] / s * scale[i];
  }
}"""
CALL = """x, y = x.contiguous(), torch.empty_like(x)
        p = ctypes.c_void_p
        lib.run(p(x.data_ptr()), p(self.scale.data_ptr()), p(y.data_ptr()), ctypes.c_int64(x.shape[0]), ctypes.c_int64(x.shape[1]))
        return y"""


@pytest.mark.timed
def test_a_compiled_program_passes_and_is_built_once(bench):
    program = built(KERNEL, CALL)
    assert not bench.verify_once(program).build.cached
    report = bench.verify(program)
    assert report.status == "passed" and report.build.cached, report.message
    assert report.weights == "loaded" and report.program_class in ("custom", "mixed")
    assert [stage.name for stage in report.stages] == ["static", "build", "correctness", "timing", "integrity"]
    names = {trial.name for trial in report.trials}
    assert {"task inputs 1", "random weights", "negative", "heavy-tailed"} <= names
    comparison = report.against("eager")
    assert comparison.speedup.low <= comparison.speedup.ratio <= comparison.speedup.high
    assert report.floor_ms > 0


def test_wrong_results(bench):
    report = bench.verify(PROGRAM.replace("dim=-1", "dim=0"))
    assert report.status == "wrong_result" and "task inputs 1" in report.message and report.timing is None
    assert "shape" in bench.verify(PROGRAM.replace("* self.scale", "[:1]")).message
    assert "dtype" in bench.verify(PROGRAM.replace("* self.scale", ".double() * self.scale")).message


def test_where_there_is_no_fp64_a_wrong_result_says_what_it_was_held_against(quick):
    task = TASK.replace("return torch", 'assert x.dtype == torch.float32, "fp32 alone"\n        return torch')
    report = quick.verify(task.replace("class Model", "class ModelNew").replace("* self.scale", "* self.scale * 1.001"), task)
    assert report.status == "wrong_result", report.message
    assert "held against PyTorch's own result: no fp64: AssertionError: fp32 alone" in report.message, report.message
    assert "no fp64" not in quick.verify(PROGRAM.replace("* self.scale", "* self.scale * 1.001")).message


def test_lower_precision_is_wrong_under_fp32(quick):
    for dtype in ("bfloat16", "float16"):
        report = quick.verify(PROGRAM.replace("torch.softmax(x, dim=-1)", f"torch.softmax(x.to(torch.{dtype}), dim=-1).float()"))
        assert report.status == "wrong_result", dtype


def test_a_stale_buffer_and_a_changed_input_are_wrong(quick):
    stale = PROGRAM.replace(
        "return torch.softmax(x, dim=-1) * self.scale",
        "self.kept = getattr(self, 'kept', None) if getattr(self, 'kept', None) is not None else torch.empty_like(x)\n"
        "        return self.kept.copy_(torch.softmax(x, dim=-1) * self.scale)",
    )
    assert "called again" in quick.verify(stale).message
    assert "input 0" in quick.verify(PROGRAM.replace("return torch", "x.add_(0.5)\n        return torch")).message


def test_memory_of_an_input_is_found(quick):
    memo = PROGRAM.replace(
        "return torch.softmax(x, dim=-1) * self.scale",
        "self.known = getattr(self, 'known', {})\n"
        "        if 'y' not in self.known:\n            self.known['y'] = torch.softmax(x, dim=-1) * self.scale\n"
        "        return self.known['y'].clone()",
    )
    assert quick.verify(memo).status == "wrong_result"


def test_ignored_weights_are_seen(quick):
    report = quick.verify(PROGRAM.replace("* self.scale", "* 1.0"))
    assert report.status == "wrong_result" and "weights" in report.message, report.message


@pytest.mark.slow
@pytest.mark.timed
def test_other_names_of_weights(bench):
    report = bench.verify(PROGRAM.replace("self.scale", "self.gain"))
    assert report.status == "passed" and report.weights == "matched"


def test_a_build_that_fails_names_the_line(bench):
    program = built(KERNEL.replace("float m = a[0]", "float m = unknown[0]"), CALL)
    report = bench.verify(program)
    assert report.status == "build_failed"
    assert "unknown" in report.message and "unknown" in report.build.compiler_output
    assert "unknown" in program.splitlines()[report.problems[0].line - 1]


def test_a_crash_is_tried_twice_and_named(bench):
    report = bench.verify(PROGRAM.replace("return torch", "import ctypes; ctypes.string_at(0)\n        return torch"))
    assert report.status == "crashed" and "segmentation fault" in report.message
    assert any(finding.rule == "crash" for finding in report.findings)


def test_an_exception_and_a_hang_name_the_line(quick):
    report = quick.verify(PROGRAM.replace("return torch", "raise KeyError('here')\n        return torch"))
    assert report.status == "crashed" and "line 11" in report.message and "KeyError" in report.message
    report = quick.verify(PROGRAM.replace("return torch", "while True: pass\n        return torch"))
    assert report.status == "timed_out" and "line 11" in report.message


def test_rejections(quick):
    for line in ("import sys; sys._getframe()", "import os; os.system('ls')", "torch.softmax = None", "open('/proc/self/maps')", "import socket"):
        report = quick.verify(PROGRAM.replace("return torch", f"{line}\n        return torch"))
        assert report.status == "rejected" and "line 11" in report.message, line


def test_a_program_that_does_not_parse(quick):
    report = quick.verify("class ModelNew(:\n")
    assert report.status == "build_failed" and report.problems[0].line == 1


@pytest.mark.slow
@pytest.mark.timed
def test_state_that_the_task_changes(bench):
    task = TASK.replace("self.scale = nn.Parameter(torch.ones(size))", "self.norm = nn.BatchNorm1d(size)").replace("* self.scale", "+ self.norm(x)")
    program = task.replace("class Model", "class ModelNew")
    assert bench.verify(program, task).status == "passed"
    frozen = program.replace("self.norm(x)", "torch.nn.functional.batch_norm(x, None, None, self.norm.weight, self.norm.bias, True)")
    report = bench.verify(frozen, task)
    assert report.status == "wrong_result" and "running" in report.message


@pytest.mark.slow
@pytest.mark.timed
def test_state_that_is_rounding_noise_after_the_timed_calls(bench):
    report = bench.verify(NOISY_PROGRAM, NOISY_TASK)
    assert report.status == "passed", report.message


@pytest.mark.slow
@pytest.mark.timed
def test_tuples_and_integers(bench):
    task = TASK.replace("return torch.softmax(x, dim=-1) * self.scale", "y = x * self.scale\n        return y, {'best': y.argmax(-1)}")
    program = task.replace("class Model", "class ModelNew")
    assert bench.verify(program, task).status == "passed"
    assert "best" in bench.verify(program.replace("argmax(-1)", "argmin(-1)"), task).message


def test_a_clock_that_is_stopped_is_not_believed(bench):
    # Work that continues in a thread after forward has returned does not pass.
    late = PROGRAM.replace(
        "return torch.softmax(x, dim=-1) * self.scale",
        "import threading, time\n        y = torch.empty_like(x)\n        scale = self.scale.detach()\n"
        "        def work():\n            time.sleep(0.05)\n            y.copy_(torch.softmax(x, dim=-1) * scale)\n"
        "        threading.Thread(target=work).start()\n        return y",
    )
    assert bench.verify_once(late).status in ("wrong_result", "inconclusive")
