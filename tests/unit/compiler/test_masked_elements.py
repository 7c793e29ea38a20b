"""Computations on elements selected by a mask, whose number depends on the data, are captured as computations on all elements."""

import pytest

from tests.slowness import quick
from tests.unit.compiler.test_parts import INIT, checked, written

BODIES = {
    "a spline": "o = torch.zeros_like(x)\nm = (x > -1) & (x < 1)\no[~m] = x[~m]\no[m] = torch.log(torch.sigmoid(x[m])) * 2 + x[m]\n"
    "return self.fc(o) * 2 + 1",
    "the farthest points": "d = torch.full((8, 12), 1e10)\nfor i in range(3):\n    e = (x - x[i]).abs()\n    m = e < d\n    d[m] = e[m]\n"
    "return torch.softmax(self.fc(d), -1)",
    "rows that change places": "a, b = torch.tanh(self.fc(x)) * 2, x.exp()\nm = x[:, 0] > 0\nt = a[m]\na[m] = b[m]\nb[m] = t\nreturn a, b",
    "changes in between": "h = torch.tanh(self.fc(x)) * 2\nk = x > 0\na = ~k\nk[0] = True\nb = ~k\nh[a] = h[a] + 1\nt = h[b]\nh.mul_(2)\n"
    "y = x.clone()\ny[b] = t\nu = h[a]\nu += 3\ny[a] = u * 2\nreturn h, y, u.sum()",
    "in place": "h = torch.tanh(self.fc(x)) * 2\nh[h < 0] *= 0.5\nh[x > 0] += 1\nreturn torch.softmax(h, -1)",
    "losses": "m = x[:, 0] > 0\nh = torch.tanh(self.fc(x))\nt = x.sin()\nreturn F.mse_loss(h[m], t[m]), "
    "F.smooth_l1_loss(h[m], t[m], reduction='sum'), (h[m] - t[m]).abs().mean(), F.cross_entropy(h[m], x.argmax(1)[m]), h[x > 9].sum()",
    "nothing selected": "h = torch.tanh(self.fc(x)) * 2\nm = x > 1e6\nh[m] = h[m] + 1\nreturn h.exp(), h[m].sum()",
    "halves": "h = self.fc(x).bfloat16()\nm = x > 0\nreturn h[m].mean(), torch.relu(h) + 1",
}


@pytest.mark.parametrize("kind", quick(BODIES, 3))
def test_selected_elements_are_computed_among_all(kind):
    plan, _ = checked(written(BODIES[kind], "x", "", INIT))
    assert not plan.captured.parts and not plan.left


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        "y = (h[m] * 9).int() // (x[m] + 1).int()",
        "y = torch.bernoulli(h[m].sigmoid())",
        "y = h[m].cumsum(0)",
        "y = h[m][::2]",
        "y = h[m] + torch.rand_like(h[m])",
    ],
)
def test_what_needs_the_selected_elements_alone_stays(line):
    plan, _ = checked(written(f"h = torch.tanh(self.fc(x)) * 2\nm = x > 0.5\n{line}\nreturn F.softmax(h * 2, -1), y.sum()", "x", "", INIT))
    assert plan.own and any("depends on" in why for why in plan.left)
