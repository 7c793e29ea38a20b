"""State that forward changes is never precomputed: several calls of a program agree with the same number of calls of the model."""

import pytest
import torch

from tests.unit.compiler.conftest import flat
from tests.unit.compiler.loading import load
from verifier.parties.capturing.exporting.assigned import storing

BRANCH = "y = torch.tanh(self.fc(x)) * 2\nif y.sum() > -1e9:\n    {}\n"
STATE = (
    "self.fc = nn.Linear(32, 32)\nself.w = nn.Parameter(torch.rand(32, 32))\nself.register_buffer('r', torch.rand(32, 32))\n"
    "self.register_buffer('k', torch.randn(32, 4, 3, 3))\nself.register_buffer('m', torch.rand(32, 32).round())"
)
BODIES = {
    "weights of a convolution, changed behind it": "y = F.conv2d(x.view(-1, 4, 8, 8), self.k, padding=1).relu()\nself.k.mul_(0.5)\nreturn y",
    "a buffer, in a branch": BRANCH.format("self.r.add_(0.5)") + "return torch.exp(self.r) * y",
    "weights of a convolution, in a branch": BRANCH.format("self.k.mul_(0.5)") + "return F.conv2d(y.view(-1, 4, 8, 8), self.k, padding=1).relu()",
    "a parameter's data": "self.w.data.mul_(0.9)\nreturn torch.tanh(x) * torch.exp(self.w)",
    "a parameter's data, one of all": BRANCH.format("for p in self.parameters():\n        p.data.mul_(0.9)") + "return torch.exp(self.w) * y",
    "a layer's weights behind a mask": "self.fc.weight.data *= self.m * 0.5\nreturn self.fc(torch.tanh(x) + 1) * torch.sigmoid(self.fc.weight)",
    "under two names": "self.r.add_(1.0)\nreturn torch.exp(self.q * 0.1) * torch.tanh(x)",
}
# A submodule that assigns its buffers in a different order from their registration, next to one that changes its buffers in place.
ASSIGNING = (
    "class Observer(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.register_buffer('count', torch.zeros(32))\n"
    "        self.register_buffer('hi', torch.ones(()))\n        self.register_buffer('last', torch.zeros(32))\n\n    def forward(self, x):\n"
    "        old = self.last\n        self.last = x.mean(0)\n        self.hi = self.hi + 0.1 * (x.max() - self.hi)\n        self.count.add_(1)\n"
    "        return torch.tanh(x / self.hi) + old + self.last + self.count\n\n\n"
)
ASSIGNED = {
    "in a submodule": "return self.one(x) * 2",
    "in two submodules, one of them called twice": "return self.one(self.two(self.one(x))) * 2",
    "without gradients": "with torch.no_grad():\n    y = self.two(x)\nreturn self.one(y) * 2",
}
NO_TENSOR = {
    "a part that is given nothing": "t = torch.softmax(torch.exp(self.w) * 2, -1)\nif t.sum() < 0:\n    return x\nreturn F.gelu(x @ t) + t",
    "a range behind it": "y = torch.softmax(x * 2, -1)\nif y.sum() < 0:\n    return x\nw = torch.arange(32, device=y.device).cumsum(0)\n"
    "return torch.sort(y.sum(-1, keepdim=True) * w, -1)[0] * 2, w",
}

MADE_LATE = {
    "assigned": ("self.register_buffer('late', None)", "if self.late is None:\n    self.late = torch.cos(x[0] * 0 + 2)\n"),
    "registered": (
        "self.register_buffer('late', None, persistent=False)",
        "if self.late is None:\n    self.register_buffer('late', torch.arange(32.0), persistent=False)\n",
    ),
    "without a place": ("pass", "if not hasattr(self, 'late'):\n    self.register_buffer('late', torch.arange(32.0), persistent=False)\n"),
}


def check_calls(found, calls=3):
    """Compares `calls` calls of the program with as many calls of the model."""
    program = found.make(load(found.text, "program")["ModelNew"])
    program.load_state_dict(found.model.state_dict())
    with torch.no_grad():
        for _ in range(calls):
            for got, expected in zip(flat(program(*found.inputs)), flat(found.model(*found.inputs)), strict=True):
                torch.testing.assert_close(got, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", BODIES)
def test_state_that_changes_from_call_to_call(compiled, task, name):
    init = STATE + ("\nself.register_buffer('q', self.r)" if "two names" in name else "")
    found = compiled(task(BODIES[name], "torch.randn(32, 32)", init))
    assert found.own, found.plan.why_none
    check_calls(found)


@pytest.mark.parametrize("name", ASSIGNED)
def test_buffers_that_forward_assigns(compiled, task, name):
    source = task(ASSIGNED[name], "torch.randn(16, 32)", "self.one, self.two = Observer(), Observer()")
    found = compiled(source.replace("class Model", ASSIGNING + "class Model", 1))
    assert found.own, found.plan.why_none
    check_calls(found)


def test_a_buffer_that_grows_is_refused():
    class Growing(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("past", torch.zeros(1, 4))

        def forward(self, x):
            self.past = torch.cat([self.past, x])
            return self.past.sum(0)

    model = torch.nn.Sequential(Growing())
    with pytest.raises(ValueError, match=r"forward assigns a tensor of another shape or type to the buffer 0\.past"):
        storing(model, model)(torch.ones(1, 4))


@pytest.mark.parametrize("name", NO_TENSOR)
def test_tensors_are_made_where_the_weights_are(compiled, task, name):
    found = compiled(task(NO_TENSOR[name], "torch.randn(32, 32)", STATE if "self." in NO_TENSOR[name] else ""))
    assert found.own, found.plan.why_none
    check_calls(found)


@pytest.mark.parametrize("name", MADE_LATE)
def test_a_buffer_that_the_first_call_makes(compiled, task, name):
    init, make = MADE_LATE[name]
    found = compiled(task(make + "return torch.softmax(torch.tanh(x) * self.late, -1)", "torch.randn(32, 32)", init))
    assert found.own, found.plan.why_none
    check_calls(found)


def test_of_parameters_that_lines_in_python_do_not_name_something_is_made_once(compiled, task):
    found = compiled(task(BRANCH.format("self.r.add_(0.5)") + "return torch.exp(self.w) * y + self.r", "torch.randn(32, 32)", STATE))
    assert "torch.exp(self.w).contiguous()" in found.text, found.text
    check_calls(found)
