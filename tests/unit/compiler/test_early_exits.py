"""Loops over modules that end early, and statements under `try` and `with`: everything in them that can be captured is captured."""

import pytest

from tests.slowness import quick
from tests.unit.compiler.test_parts import INIT, checked, written

LAYERS = INIT + (
    "        self.ls = nn.ModuleList(nn.Linear(12, 12) for _ in range(3))\n"
    "        self.d = nn.ModuleDict({'a': nn.Linear(12, 12), 'b': nn.Linear(12, 12)})\n        self.n = 0\n"
)
BREAK = "    x = torch.tanh({}(x)) * 2 + x\n    if x.mean() > 0.02:\n        break\n"
SOFTMAX = "return torch.softmax(x, -1)"
BRANCH = "    y = torch.tanh(self.fc(x)) * 2 + x\n    if y.mean() > 0.0:\n        y = y.exp() + 1\n    z = torch.softmax(y, -1) * 2\nreturn z + 1"
BODIES = {
    "break": f"for l in self.ls:\n{BREAK.format('l')}{SOFTMAX}",
    "break and the pass": f"for i, l in enumerate(self.ls):\n{BREAK.format('l')}{SOFTMAX}, i",
    "break or else": f"for l in self.ls:\n{BREAK.format('l')}else:\n    x = x + 100\n{SOFTMAX}",
    "break of a range": f"for i in range(len(self.ls)):\n{BREAK.format('self.ls[i]')}{SOFTMAX}",
    "break of a slice": f"for l in self.ls[1:]:\n{BREAK.format('l')}{SOFTMAX}",
    "break of a dict": f"for k, l in self.d.items():\n{BREAK.format('l')}{SOFTMAX}",
    "continue": f"for l in self.ls:\n    y = torch.tanh(l(x)) * 2\n    if y.mean() > 0.02:\n        continue\n"
    f"    x = x + torch.sigmoid(y) * y\n{SOFTMAX}",
    "continue and break": "for l, m in zip(self.ls, reversed(self.ls)):\n    y = torch.tanh(l(m(x))) * 2 + x\n"
    "    if y.mean() > 0.02:\n        continue\n"
    f"    if y.mean() < -0.02:\n        break\n    x = torch.sigmoid(y) * y\n{SOFTMAX}",
    "return": f"for l in self.ls:\n    x = torch.tanh(l(x)) * 2 + x\n    if x.mean() > 0.02:\n        {SOFTMAX}\nreturn torch.exp(x) + 1",
    "try and finally": "try:\n    y = torch.tanh(self.fc(x)) * 2 + x\n    if y.isnan().any():\n        raise FloatingPointError('nan')\n"
    "    return torch.softmax(y, -1)\nfinally:\n    self.n += 1",
    "an error of an operator": "h = torch.tanh(self.fc(x)) * 2\ntry:\n    y = torch.linalg.cholesky(h.t() @ h - 5 * torch.eye(12))\n"
    "except RuntimeError:\n    y = torch.eye(12)\nreturn torch.softmax(h @ y, -1)",
    "any error of an operator": "h = torch.tanh(self.fc(x)) * 2\ntry:\n    y = torch.linalg.cholesky(h.t() @ h - 5 * torch.eye(12))\n"
    "except:\n    y = torch.eye(12)\nreturn torch.softmax(h @ y, -1)",
    "an error of an index": "h = torch.tanh(self.fc(x)) * 2\ntry:\n    y = h.index_select(0, torch.tensor([99, 1]))\n"
    "except IndexError:\n    y = h[:2] * 3\nreturn torch.softmax(h, -1) * 2, y",
    "no gradients": f"with torch.no_grad():\n{BRANCH}",
    "a record": f"with torch.profiler.record_function('block'):\n{BRANCH}",
    "other arithmetic": "with torch.autocast('cpu', dtype=torch.bfloat16):\n    y = torch.tanh(self.fc(x)) * 2\n    if y.sum() > 0:\n"
    "        y = y + 1\n"
    "y = y.float()\nreturn torch.softmax(y, -1) * 2",
}
GRADIENT = "with torch.enable_grad():\n    z = x.detach().requires_grad_()\n    y = (torch.tanh(self.fc(z)) ** 2).sum()\n    "


@pytest.mark.parametrize("name", quick(BODIES, 4))
def test_what_an_exit_stands_beside_is_captured(name):
    plan, text = checked(written(BODIES[name], "x", "", LAYERS), calls=5)
    assert plan.own, plan.why_none
    if "break" in name or "continue" in name:
        assert sum("torch.tanh" in part.statements for part in plan.captured.parts) > 1, text


@pytest.mark.slow
@pytest.mark.parametrize(
    "way", ["y.backward()\nreturn torch.softmax(z.grad * 2, -1) + 1", "g, = torch.autograd.grad(y, z)\nreturn torch.softmax(g * 2, -1) + 1"]
)
def test_gradients_within_forward_are_named(way):
    plan, _ = checked(written(GRADIENT + way, "x", "", INIT))
    assert any("gradients are computed inside forward" in why for why in plan.left), plan.left


def test_what_stays_in_python_is_told_where_no_kernel_is_made():
    plan, _ = checked(written("s = max(x.max().item(), 1e-8)\nreturn self.fc(x / round(s + 1)) ", "x", "", INIT))
    told = "left in Python: line 12: a number is read from a tensor, for Python; line 13: `round(s + 1)` has a size or value that depends on data"
    assert not plan.own and told in plan.why_none and plan.why_none.count("line 13") == 1, plan.why_none


@pytest.mark.parametrize("cast", ["torch.int8", "torch.float8_e4m3fn"])
def test_the_bits_of_a_weight_are_read_as_another_type(cast):
    init = INIT + "        self.register_buffer('q', torch.randint(0, 100, (12, 12), dtype=torch.uint8))\n"
    plan, _ = checked(written(f"return torch.relu(x @ self.q.view({cast}).float() - 100) + 1", "x", "", init))
    assert plan.own, plan.why_none
