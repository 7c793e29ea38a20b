"""State that a kernel both reads and writes: each thread reads it before another thread stores to it."""

import pytest

from compiler import DeviceFigures
from tests.emulator import as_cpp

INIT = "self.register_buffer('mean', torch.zeros(ROWS))\nself.register_buffer('count', torch.zeros(ROWS))"
BODIES = {
    "read for every element": "self.mean.mul_(0.9).add_(x.mean(1), alpha=0.1)\nreturn (x - self.mean[:, None]) / (x.std(1, keepdim=True) + 1)",
    "read before and after": "old = self.mean.clone()\nself.mean.copy_(x.amax(1))\nself.count.add_(1)\nreturn x * old[:, None] + self.mean[:, None]",
    "read where it is stored alone": "self.mean.mul_(0.9).add_(x.mean(1), alpha=0.1)\nreturn x - x.mean(1, keepdim=True)",
}


@pytest.mark.parametrize("rows, length", [(32, 128), (6, 5000)], ids=["a warp a row", "a block a row"])
@pytest.mark.parametrize("kind", BODIES)
def test_state_of_rows(compiled, task, kind, rows, length):
    source = task(BODIES[kind], f"torch.randn({rows}, {length})", INIT.replace("ROWS", str(rows)))
    found = compiled(source, figures=DeviceFigures.h200())
    stored = "self.mean.copy_(" not in found.text
    assert stored is (kind == "read where it is stored alone")
    found.text = as_cpp(found.text)
    found.check()


@pytest.mark.parametrize("figures", [None, DeviceFigures.h200()], ids=["cpp", "cuda"])
def test_memory_that_an_earlier_store_writes_is_read_before(compiled, task, figures):
    """A recurrence in several kernels: the first one passes on a value that the last step of another kernel reads and that its own first step
    overwrites."""
    step = "delta = x[:, t] + 0.99 * y[:, t + 1] * (1 - z[:, t]) - y[:, t]\n    last = delta + 0.9405 * (1 - z[:, t]) * last"
    body = f"out = torch.zeros_like(x)\nlast = torch.zeros(4)\nfor t in reversed(range(29)):\n    {step}\n    out[:, t] = last\nreturn out"
    found = compiled(task(body, "torch.randn(4, 30), torch.randn(4, 30), torch.rand(4, 30)", arguments="x, y, z"), figures=figures)
    if figures is not None:
        found.text = as_cpp(found.text)
    found.check()


def test_a_counter_that_is_returned_as_well(compiled, task):
    body = "self.calls.add_(1)\nself.seen.add_(1)\nreturn torch.relu(x) * 2, self.calls"
    init = "self.register_buffer('calls', torch.tensor(0))\nself.register_buffer('seen', torch.tensor(0))"
    found = compiled(task(body, "torch.randn(30, 70)", init))
    assert "self.seen += 1" in found.text
    found.check()


READ_AGAIN = {
    "moments of an activation": "h = F.silu(self.a(x))\nreturn h, h.mean(0), h.var(0)",
    "a residual and its norm": "h = x + F.gelu(self.a(x))\nreturn self.a(F.rms_norm(h, (16,))) + h",
}


@pytest.mark.parametrize("kind", READ_AGAIN)
def test_a_value_is_not_overwritten_before_a_pass_that_computes_it_again(compiled, task, kind):
    """The printed shape (rows over SIMD lanes) keeps no values between passes, so the second pass reads the product's result again."""
    found = compiled(task(READ_AGAIN[kind], "torch.randn(6, 16)", "self.a = nn.Linear(16, 16)"))
    assert "rows over threads and SIMD lanes" in found.text
    found.check()
