"""Values that depend on a single weight are computed once, and again if the weight is replaced."""

import pytest
import torch

from compiler import DeviceFigures
from tests.emulator import as_cpp
from tests.unit.compiler.loading import load

INIT = "self.w = nn.Parameter(torch.randn(96, 64))\nself.v = nn.Parameter(torch.randn(64))"
MADE_ONCE = {
    "a decay": ("return torch.sigmoid(x * -torch.exp(self.w))", "(-torch.exp(self.w)).contiguous()"),
    "a scaled one": ("return torch.tanh(x) * F.softplus(self.w * 2.0)", "torch.nn.functional.softplus((self.w * 2.0)).contiguous()"),
    "a turned one": ("return torch.tanh(x.t() + torch.exp(self.w.t()))", "torch.exp(self.w.permute([1, 0])).contiguous()"),
}
EACH_CALL = {
    "few elements": "return x * torch.exp(self.v)",
    "with an input": "return torch.tanh(self.w * x)",
    "what the caller gets": "w = torch.exp(self.w)\nreturn x * w, w.t()",
    "infinity": "return x * torch.exp(self.w / -float('inf'))",
    "of two weights": "return x * torch.exp(self.w + self.v)",
}


@pytest.mark.parametrize("name", MADE_ONCE)
def test_made_once(compiled, task, name):
    body, code = MADE_ONCE[name]
    found = compiled(task(body, "torch.randn(96, 64)", INIT), figures=DeviceFigures.h200())
    assert code in found.text, found.text
    found.text = as_cpp(found.text)
    found.check()


@pytest.mark.parametrize("name", EACH_CALL)
def test_computed_in_each_call(compiled, task, name):
    found = compiled(task(EACH_CALL[name], "torch.randn(96, 64)", INIT))
    assert "def pack" not in found.text
    found.check()


def test_a_cast_of_16_bits_and_other_weights(compiled, task):
    found = compiled(task("return F.linear(x.float(), self.w.float()).relu()", "torch.randn(512, 64)", INIT), precision="bf16")
    assert "self.w.to(torch.float32).contiguous()" in found.text, found.text
    found.check()
    program, x = found.make(load(found.text, "program")["ModelNew"]), found.inputs[0]
    before = program(x)
    program.load_state_dict({name: value * 2 for name, value in program.state_dict().items()})
    assert torch.equal(program(x), before * 2)


def test_state_that_forward_changes_is_read_as_it_is(compiled, task):
    body = "self.seen.add_(x)\nreturn x * torch.exp(self.seen)"
    found = compiled(task(body, "torch.randn(96, 64)", "self.register_buffer('seen', torch.zeros(96, 64))"))
    assert "def pack" not in found.text
    found.check()
