"""Loops over steps of many kinds, as one kernel in the emulator and compared with PyTorch: several loops, schedules, initial states, results along
any axis, weights that are views, and operators over rows."""

import pytest

from compiler import DeviceFigures, Options, print_program
from compiler.families.stepped import stepped
from tests.emulator import as_cpp

CELL = "self.cell = nn.GRUCell(5, 8)"
TWO = "self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)"
BOTH_WAYS = """h, g, there, back = x.new_zeros(x.shape[0], 8), x.new_ones(x.shape[0], 8), [], []
for t in range(x.shape[1]):
    h = self.cell(x[:, t], h)
    there.append(h)
for t in reversed(range(x.shape[1])):
    g = self.other(x[:, t], g)
    back.insert(0, g)
return torch.cat([torch.stack(there, 1), torch.stack(back, 1)], -1)"""
TURNS = """h = g = x.new_zeros(x.shape[0], 8)
there, back = [], []
for t in range(x.shape[1]):
    h = self.cell(x[:, t], h)
    g = self.cell(x[:, x.shape[1] - 1 - t], g)
    there.append(h)
    back.insert(0, g)
return torch.cat([torch.stack(there, 1), torch.stack(back, 1)], -1)"""
SAMPLER = """for i in reversed(range(10)):
    number = torch.full((x.shape[0],), i, dtype=torch.long)
    noise = self.net(torch.cat([x, self.embedding(number)], 1))
    x = (x - self.rates[i] / torch.sqrt(1 - self.kept[i]) * noise) / torch.sqrt(1 - self.rates[i])
return x"""
SAMPLER_PARTS = """self.net, self.embedding = nn.Sequential(nn.Linear(10, 16), nn.SiLU(), nn.Linear(16, 6)), nn.Embedding(10, 4)
self.register_buffer('rates', torch.linspace(1e-2, 0.2, 10))
self.register_buffer('kept', torch.cumprod(1 - self.rates, 0))"""
MASKED = """h = x.new_zeros(x.shape[0], 8)
for t in range(x.shape[1]):
    h = torch.where((t < lengths)[:, None], self.cell(x[:, t], h), h)
return h"""
ACCELERATED = """y = z = x.new_zeros(x.shape[0], 6)
for k in range(12):
    new = F.softshrink(y - 0.05 * (F.linear(y, self.a) - x) @ self.a, 0.01)
    y, z = new + k / (k + 3) * (new - z), new
return z"""
ONE_TENSOR = """state, states = x.new_zeros(x.shape[0], 16), []
for t in range(x.shape[1]):
    state = torch.cat(self.cell(x[:, t], state.chunk(2, -1)), -1)
    states.append(state)
return torch.stack(states, 1)"""
SCALARS = """s = x.new_zeros(x.shape[0])
for t in range(x.shape[1]):
    s = 0.9 * s + self.b(torch.tanh(self.a(torch.cat([x[:, t], s[:, None]], -1)))).squeeze(-1) / (t + 1)
return s"""
ROWS = """for t in range(10):
    y = self.a(x)
    low, spread = y.amin(-1, keepdim=True), y.std(-1, keepdim=True) + y.var(-1, unbiased=False)[:, None]
    x = F.normalize((y - low) / (spread + 1.0), dim=-1) + torch.std(y, dim=-1, keepdim=True, correction=2)
return x"""
GATES = """h = x.new_zeros(x.shape[0], 8)
for t in range(x.shape[1]):
    keep = torch.sigmoid(x[:, t] @ self.w[0, :5] + h @ self.w[0, 5:])
    h = (1 - keep) * h + keep * torch.tanh(x[:, t] @ self.w[1, :5] + (keep * h) @ self.w[1, 5:]) @ self.v @ self.v.t()
return h"""
PATH = """states = [x]
for t in range(9):
    x = torch.tanh(self.a(x))
    states.append(x)
return torch.stack(states, 1), torch.stack(states), torch.stack(states[1:], -1), torch.cat(states, 1)"""
FED_BACK = """h, y, seen = x.new_zeros(x.shape[0], 8), x, []
for t in range(9):
    h = self.cell(y, h)
    seen.append(F.softmax(self.read(h), -1))
    y = seen[-1] @ self.words
return torch.stack(seen)"""
INPUTS_AHEAD = """h, y, seen = x.new_zeros(x.shape[0], 8), x[:, 0], []
for t in range(x.shape[1]):
    h = self.cell(y, h)
    seen.append(self.read(h))
    if t + 1 < x.shape[1]:
        y = 0.5 * x[:, t + 1] + 0.5 * seen[-1]
return torch.stack(seen, 1)"""
TIMES = """for i in range(10):
    time = self.times(torch.full_like(x[:, :1], i / 10))
    x = x + self.b(F.silu(self.a(x) + time))
return x"""
LAYERS = """states = [x[:, t] for t in range(x.shape[1])]
for cell in (self.cell, self.second, self.third):
    h, c, below, states = x.new_zeros(x.shape[0], 8), x.new_zeros(x.shape[0], 8), states, []
    for v in below:
        h, c = cell(v, (h, c))
        states.append(h + v if v.shape == h.shape else h)
return torch.stack(states, 1), h"""
MEETING = """c = z * 2
for t in range(9):
    z = torch.tanh(self.a(z)) * self.s[t] + self.s[8 - t] * c * 0.5 + 0.1 * t + self.s[0]
    c = torch.sin(z) * 0.5 + c
return z, c"""
STEPS = {
    "one loop after the other": (BOTH_WAYS, f"{CELL}\nself.other = nn.GRUCell(5, 8)", "torch.randn(3, 9, 5)", "x", 2),
    "one layer after the other": (LAYERS, "self.cell, self.second, self.third = nn.LSTMCell(5, 8), nn.LSTMCell(8, 8), nn.LSTMCell(8, 8)",
                                  "torch.randn(3, 9, 5)", "x", 3),
    "both directions in a pass": (TURNS, CELL, "torch.randn(3, 11, 5)", "x", 1),
    "similar layers before": ("x = torch.tanh(self.b(torch.tanh(self.a(x))))\nfor t in range(9):\n    x = torch.tanh(self.c(x))\nreturn x",
                              f"{TWO}\nself.c = nn.Linear(6, 6)", "torch.randn(5, 6)", "x", 1),
    "two kinds of passes": ("for t in range(9):\n    x = torch.tanh(self.a(x))\nfor t in range(10):\n    x = F.gelu(self.b(x)) + x\nreturn x",
                            TWO, "torch.randn(5, 6)", "x", 2),
    "schedule in buffers": (SAMPLER, SAMPLER_PARTS, "torch.randn(5, 6)", "x", 1),
    "layers of a constant": (TIMES, "self.times, self.a, self.b = nn.Linear(1, 12), nn.Linear(6, 12), nn.Linear(12, 6)", "torch.randn(5, 6)", "x", 1),
    "lengths": (MASKED, CELL, "torch.randn(3, 9, 5), torch.tensor([9, 3, 5])", "x, lengths", 1),
    "a number that equals another": (ACCELERATED, "self.a = nn.Parameter(torch.randn(9, 6) * 0.3)", "torch.randn(5, 9)", "x", 1),
    "numbers at the same place in one pass": (MEETING, f"{TWO}\nself.register_buffer('s', torch.rand(9))", "torch.randn(5, 6)", "z", 1),
    "state in one tensor": (ONE_TENSOR, "self.cell = nn.LSTMCell(5, 8)", "torch.randn(3, 9, 5)", "x", 1),
    "a number per row": (SCALARS, "self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 1)", "torch.randn(3, 9, 5)", "x", 1),
    "reductions": (ROWS, "self.a = nn.Linear(33, 33)", "torch.randn(5, 33)", "x", 1),
    "parts of weights": (GATES, "self.w, self.v = nn.Parameter(torch.randn(2, 13, 8) * 0.3), nn.Parameter(torch.randn(8, 3) * 0.3)",
                         "torch.randn(3, 10, 5)", "x", 1),
    "all states and the initial one": (PATH, TWO, "torch.randn(6, 5).t()", "x", 1),
    "one row": (PATH, TWO, "torch.randn(1, 6)", "x", 1),
    "no next pass": (FED_BACK, f"{CELL}\nself.read, self.words = nn.Linear(8, 11), nn.Parameter(torch.randn(11, 5))", "torch.randn(3, 5)", "x", 1),
    "no next input": (INPUTS_AHEAD, f"{CELL}\nself.read = nn.Linear(8, 5)", "torch.randn(3, 10, 5)", "x", 1),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPS)
def test_passes_of_any_kind_are_one_kernel(compiled, task, monkeypatch, name):
    monkeypatch.setattr(stepped, "WORTH", 1e9)
    body, init, inputs, taken, loops = STEPS[name]
    found = compiled(task(body, inputs, init, taken), figures=DeviceFigures.h200())
    assert [group.family for group in found.plan.groups].count("steps") == loops, [group.title for group in found.plan.groups]
    options = Options(group_knobs={group.id: {"rows": 2} for group in found.plan.groups if group.family == "steps"})
    found.text = as_cpp(print_program(found.plan, found.source, options)).replace('("cpp", SOURCE)', '("cpp", SOURCE, ("-O1",))')
    found.check()
