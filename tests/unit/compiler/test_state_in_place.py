"""State that a kernel reads and writes: each thread reads it before another one stores it."""

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
