"""Tasks with float8 arguments, weights, state and outputs. The task's own model passes, and a program that computes other bits does not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from semantics_bench import Semantics, task

from compiler import DeviceFigures, Options, make_plan, print_program
from verifier.graph import Capture

ROOT = Path(__file__).resolve().parents[3]
EVERYDAY = (ROOT / "bench/everyday/serving/10_float8_blocks.py").read_text()
SIZES = "TOKENS, INPUTS, OUTPUTS, BLOCK = 64, 4096, 4096, 128"
SMALL = EVERYDAY.replace(SIZES, "TOKENS, INPUTS, OUTPUTS, BLOCK = 16, 256, 256, 128")
READ = "self.weight.to(x.dtype)"
INPUT = task(
    "return torch.relu(x.to(torch.float32) * y @ self.w.t())",
    "torch.randn(32, 64).to(torch.float8_e4m3fn); torch.rand(32, 1)",
    init="self.w = nn.Parameter(torch.randn(48, 64) * 0.1)",
)
OUTPUT = task(
    "y = x @ self.w.t()\nscale = y.abs().amax(-1, keepdim=True).clamp_min(1e-6) / 448\nreturn (y / scale).to(torch.float8_e4m3fn), scale",
    "torch.randn(32, 64)",
    init="self.w = nn.Parameter(torch.randn(48, 64) * 0.1)",
)
BYTES = task(
    "return torch.relu(x @ self.w.view(torch.float8_e5m2).to(x.dtype).t())",
    "torch.randn(32, 64)",
    init="self.register_buffer('w', torch.randn(48, 64).to(torch.float8_e5m2).view(torch.uint8))",
)
BITS = task(
    "signs = (self.w.view(torch.uint8) >> 7).to(x.dtype)\nreturn torch.relu(x @ (self.w.to(x.dtype) + signs).t())",
    "torch.randn(32, 64)",
    init="self.register_buffer('w', torch.randn(48, 64).to(torch.float8_e5m2))",
)
CACHE = task(
    "self.c.copy_((self.c.float() * 0.5 + x).to(torch.float8_e4m3fn))\nreturn torch.softmax(self.c.float(), -1)",
    "torch.randn(32, 64)",
    init="self.register_buffer('c', torch.zeros(32, 64).to(torch.float8_e4m3fn))",
)
PRODUCT = task(
    "one = torch.ones((), device=x.device)\nreturn torch._scaled_mm(x, self.w.t(), scale_a=one, scale_b=self.s, out_dtype=torch.float32)",
    "torch.randn(32, 64).to(torch.float8_e4m3fn)",
    init="self.register_buffer('w', torch.randn(48, 64).to(torch.float8_e4m3fn))\nself.register_buffer('s', torch.rand(1) + 0.1)",
)
PARAMETER = task(
    "return torch.tanh(x @ (self.w.to(x.dtype) * self.s).t())",
    "torch.randn(32, 64)",
    init="self.w = nn.Parameter(torch.randn(48, 64).to(torch.float8_e5m2), requires_grad=False)\nself.s = nn.Parameter(torch.rand(48, 1))",
)
SAME = {"everyday": SMALL, "input": INPUT, "output": OUTPUT, "bytes": BYTES, "bits": BITS, "cache": CACHE, "product": PRODUCT, "parameter": PARAMETER}


@pytest.fixture(scope="module")
def semantics(tmp_path_factory, nursery):
    semantics = Semantics(tmp_path_factory.mktemp("semantics"), nursery=nursery)
    yield semantics
    semantics.close()


@pytest.mark.parametrize("name", SAME)
def test_the_tasks_own_model_passes(semantics, name):
    assert SMALL != EVERYDAY
    outcome = semantics.same(SAME[name])
    assert not outcome.wrong, outcome.wrong
    assert semantics.admit(SAME[name]).ok


@pytest.mark.parametrize("name", ["everyday", "bits"])
def test_a_policy_of_16_bits_keeps_float8(semantics, name):
    outcome = semantics.same(SAME[name], precision="bf16")
    assert not outcome.wrong, outcome.wrong


def test_gradients_are_those_of_wider_types(semantics):
    outcome = semantics.same(PARAMETER, backward=True)
    assert not outcome.wrong, outcome.wrong


OTHER_BITS = {
    "weight ignored": (SMALL, READ, "torch.ones(self.weight.shape)"),
    "weight of its own": (SMALL, READ, "torch.randn(self.weight.shape).to(torch.float8_e4m3fn).to(x.dtype)"),
    "another format": (SMALL, READ, "self.weight.view(torch.float8_e5m2).to(x.dtype)"),
    "a bit less": (SMALL, READ, "(self.weight.view(torch.uint8) & 0xFE).view(torch.float8_e4m3fn).to(x.dtype)"),
    "input with a bit less": (INPUT, "x.to(torch.float32)", "x.to(torch.float8_e5m2).float()"),
    "output from bf16": (OUTPUT, "x @ self.w.t()", "(x.bfloat16() @ self.w.t().bfloat16()).float()"),
    "output a little smaller": (OUTPUT, "(y / scale)", "(y / scale * 0.99)"),
    "output of another type": (OUTPUT, "(torch.float8_e4m3fn), scale", "(torch.float8_e5m2), scale"),
    "state not updated": (CACHE, "self.c.copy_((self.c.float() * 0.5 + x).to(torch.float8_e4m3fn))\n        return torch.softmax(self.c.float(), -1)",
                          "return torch.softmax((self.c.float() * 0.5 + x).to(torch.float8_e4m3fn).float(), -1)"),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHER_BITS)
def test_other_bits_are_refused(semantics, name):
    source, old, new = OTHER_BITS[name]
    assert semantics.changed(source, old, new).wrong


def test_one_step_in_one_element_is_refused(semantics):
    new = "q = (y / scale).to(torch.float8_e4m3fn)\n        q.view(torch.uint8)[0, 0] ^= 1\n        return q, scale"
    outcome = semantics.changed(OUTPUT, "return (y / scale).to(torch.float8_e4m3fn), scale", new)
    assert "1 of 1,536 elements are off" in outcome.wrong


def test_sums_in_another_order_pass(semantics):
    """Some of 8,192 values lie so close to the midpoint between two steps that the order of summation decides to which step they are rounded."""
    large = task("return (x @ self.w.t()).to(torch.float8_e4m3fn)", "torch.randn(64, 512)", init="self.w = nn.Parameter(torch.randn(128, 512) * 0.1)")
    outcome = semantics.changed(large, "x @ self.w.t()", "sum(x[:, i::8] @ self.w.t()[i::8] for i in range(8))")
    assert not outcome.wrong, outcome.wrong


def test_the_everyday_task_and_its_compiled_program_from_the_command_line(tmp_path):
    (tmp_path / "task.py").write_text(SMALL)
    data = ["--data-dir", str(tmp_path / "data")]

    def verifier(*arguments: str) -> dict:
        done = subprocess.run([sys.executable, "-m", "verifier", *arguments, *data], cwd=ROOT, capture_output=True, text=True, timeout=500)
        assert done.stdout, done.stderr
        return json.loads(done.stdout)

    capture = Capture.model_validate(verifier("capture", str(tmp_path / "task.py")))
    program = print_program(make_plan(capture, SMALL, DeviceFigures.cpu(2)), SMALL, Options())
    assert "struct e4m3" in program and "const e4m3* __restrict weight" in program
    for source in (program, SMALL.replace("class Model(", "class ModelNew(")):
        (tmp_path / "program.py").write_text(source)
        report = verifier("check", str(tmp_path / "task.py"), str(tmp_path / "program.py"), "--tier", "quick", "--json")
        correctness = next(stage for stage in report["stages"] if stage["name"] == "correctness")
        assert correctness["status"] == "passed" and report["status"] in ("passed", "inconclusive"), report["message"]
