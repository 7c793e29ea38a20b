"""Loops over steps as one kernel, in the emulator and compared with PyTorch: products, operators over rows, numbers that change from pass to pass,
results of all passes and of the last, and loops that are declined."""

import pytest

from compiler import DeviceFigures, Options, print_program
from compiler.families.stepped import block, stepped
from tests.emulator import as_cpp


@pytest.fixture(autouse=True)
def always_worth_it(monkeypatch):
    monkeypatch.setattr(stepped, "WORTH", 1e9)


@pytest.fixture
def emulated(compiled):
    def run(source: str, rows: int = 0, threads: int = 0):
        found = compiled(source, figures=DeviceFigures.h200())
        knobs = {name: value for name, value in (("rows", rows), ("block", threads)) if value}
        options = Options(group_knobs={group.id: knobs for group in found.plan.groups if group.family == "steps"})
        found.text = as_cpp(print_program(found.plan, source, options)).replace('("cpp", SOURCE)', '("cpp", SOURCE, ("-O1",))')
        return found

    return run


def families(found) -> list[str]:
    return [group.family for group in found.plan.groups]


ODE = """for step in range(10):
    change = self.narrow(torch.tanh(self.wide(torch.cat((x, torch.full_like(x[:, :1], step * 0.1)), -1))))
    x = x + 0.1 * change
return x"""
CELL = """h, c, outputs = x.new_zeros(x.shape[1], 8), x.new_zeros(x.shape[1], 8), []
for step in x:
    gates = self.first(self.of_x(step)) + self.second(self.of_h(h))
    forget, write, read, new = gates.chunk(4, -1)
    c = torch.sigmoid(forget) * c + torch.sigmoid(write) * torch.tanh(new)
    h = torch.sigmoid(read) * torch.tanh(self.third(c))
    outputs.append(h)
return torch.relu(torch.stack(outputs)) + 1, c"""
CELL_PARTS = """self.of_x, self.of_h = nn.Linear(6, 32, bias=False), nn.Linear(8, 32, bias=False)
self.first, self.second, self.third = nn.LayerNorm(32), nn.LayerNorm(32), nn.LayerNorm(8)"""
GATED = """outputs = []
for t in range(x.shape[1]):
    both = torch.cat((x[:, t], h), dim=1)
    keep = torch.sigmoid(self.keep(both))
    h = keep * h + (1 - keep) * torch.tanh(self.new(both))
    outputs.append(h)
return torch.stack(outputs, dim=1)"""
ATTENDED = """for step in range(9):
    weight = torch.softmax(x @ self.keys, dim=-1)
    x = x + weight @ self.values - torch.logsumexp(x, dim=-1, keepdim=True) + x.mean(dim=-1, keepdim=True) * x.amax(-1, keepdim=True)
return x"""
FILLED = """h, out = x.new_zeros(x.shape[1], 8), x.new_zeros(x.shape[0], x.shape[1], 8)
for t in range(x.shape[0]):
    h = self.cell(x[t], h)
    out[t] = h
return out"""
BACKWARDS = """h, outputs = x.new_zeros(x.shape[0], 8), []
for t in reversed(range(x.shape[1])):
    h = torch.where(mask[:, t, None], torch.tanh(self.of_x(x[:, t]) + self.of_h(h)), h)
    outputs.insert(0, h)
return torch.stack(outputs, 1)"""
LOOPS = {
    "filled": (FILLED, "self.cell = nn.GRUCell(5, 8)", "torch.randn(10, 4, 5)", "x"),
    "backwards": (BACKWARDS, "self.of_x, self.of_h = nn.Linear(5, 8), nn.Linear(8, 8)", "torch.randn(4, 9, 5), torch.rand(4, 9) > 0.3", "x, mask"),
    "numbers": (ODE, "self.wide, self.narrow = nn.Linear(9, 12), nn.Linear(12, 8)", "torch.randn(7, 8)", "x"),
    "cell": (CELL, CELL_PARTS, "torch.randn(12, 3, 6)", "x"),
    "batch-first": (GATED, "self.keep, self.new = nn.Linear(13, 8), nn.Linear(13, 8)", "torch.randn(5, 9, 5), torch.randn(5, 8)", "x, h"),
    "row-operators": (ATTENDED, "self.keys, self.values = nn.Parameter(torch.randn(6, 5)), nn.Parameter(torch.randn(5, 6) * 0.1)",
                      "torch.randn(6, 6) * 0.1", "x"),
}  # fmt: skip


@pytest.mark.parametrize("name", LOOPS)
def test_all_passes_are_one_kernel(emulated, task, name):
    body, init, inputs, taken = LOOPS[name]
    found = emulated(task(body, inputs, init, taken), rows=2)
    assert families(found).count("steps") == 1 and len(found.plan.groups) <= 3, [group.title for group in found.plan.groups]
    found.check()


@pytest.mark.parametrize(("rows", "threads"), [(1, 128), pytest.param(4, 256, marks=pytest.mark.slow), pytest.param(8, 512, marks=pytest.mark.slow)])
def test_any_number_of_rows_and_threads_a_block(emulated, task, rows, threads):
    body, init, inputs, taken = LOOPS["numbers"]
    found = emulated(task(body, inputs, init, taken), rows=rows, threads=threads)
    assert f"{threads} threads run all passes of {rows} rows" in found.text
    found.check()


@pytest.mark.slow
def test_weights_that_do_not_fit_are_read_in_every_pass(emulated, task, monkeypatch):
    monkeypatch.setattr(block, "ROOM", 1500)
    body, init, inputs, taken = LOOPS["cell"]
    found = emulated(task(body, inputs, init, taken))
    assert "0 of 1 weight matrices in shared memory" in found.text
    found.check()


def test_products_of_all_inputs_are_one(compiled, task):
    """The product with each step's input does not need the state, so a single product computes it for all steps."""
    body, init, inputs, taken = LOOPS["cell"]
    found = compiled(task(body, inputs, init, taken))
    products = [name for group in found.plan.groups for name in group.operators if name.startswith("linear")]
    assert sum("together" in name for name in products) == 1 and len(products) == 13
    found.check()


DECLINED = {
    "other rows are read": ("for t in range(9):\n    x = torch.tanh(self.a(x)) - x.mean(dim=0, keepdim=True)\nreturn x", "torch.randn(5, 8)"),
    "a pass before the last is returned": (
        "seen = []\nfor t in range(9):\n    x = torch.tanh(self.a(x))\n    seen.append(x)\nreturn x, seen[3]", "torch.randn(5, 8)"),
    "the weights come from the inputs": ("for t in range(9):\n    x = torch.tanh(x @ w)\nreturn x", "torch.randn(5, 8), torch.randn(8, 8)"),
    "random numbers are drawn": ("for t in range(9):\n    x = torch.dropout(torch.tanh(self.a(x)), 0.5, True)\nreturn x", "torch.randn(5, 8)"),
}  # fmt: skip


@pytest.mark.parametrize("why", DECLINED)
def test_other_loops_are_left_as_they_are(compiled, task, why):
    body, inputs = DECLINED[why]
    found = compiled(task(body, inputs, "self.a = nn.Linear(8, 8)", "x, w" if "w" in body else "x"), figures=DeviceFigures.h200())
    assert "steps" not in families(found)


def test_a_loop_that_gains_nothing_is_declined_by_the_model(compiled, task, monkeypatch):
    monkeypatch.setattr(stepped, "WORTH", 0.0)
    body, init, inputs, taken = LOOPS["numbers"]
    found = compiled(task(body, inputs, init, taken), figures=DeviceFigures.h200())
    assert "steps" not in families(found)
