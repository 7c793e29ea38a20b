"""Forward in parts: if the whole cannot be captured, sequences of its statements are; numbers read from tensors stay on the device."""

import pytest
import torch

from compiler import DeviceFigures, Options, make_plan, print_program
from tests.slowness import quick
from tests.unit.compiler.loading import load
from verifier.parties.capturing.capture import capture
from verifier.parties.seeding import seed_everything

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\n"
INIT = "    def __init__(self):\n        super().__init__()\n        self.fc = nn.Linear(12, 12)\n"
BLOCK = (
    "class Block(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.a = nn.Linear(12, 12)\n\n"
    "    def forward(self, x, limit=1.0):\n        h = torch.relu(self.a(x)) + 1\n        if h.max() > limit:\n            h = h / h.max()\n"
    "        return torch.tanh(h) + x\n\n\n"
)
MASK = "torch.rand(8) > 0.5"

BODIES = {
    "a branch": (
        "h = torch.tanh(self.fc(x)) * 2\nif h.sum() > 0:\n    h = h.exp() + 1\nelse:\n    h = h.sin() * 3\nreturn F.softmax(h, -1)",
        "x",
        "",
    ),
    "a mask": ("h = torch.tanh(self.fc(x)) * 2\ns = h[m]\nreturn F.softmax(h - 1, -1), s.sum(0)", "x, m", f", {MASK}"),
    "counts": ("h = torch.tanh(self.fc(x)) * 2\nn = torch.bincount((x[:, 0] > 0).int())\nreturn F.softmax(h + 1, -1) / n.sum()", "x", ""),
    "a size": ("h = torch.tanh(self.fc(x)) * 2\ni = torch.nonzero(h[:, 0] > 0)\nreturn F.softmax(h + 1, -1), i", "x", ""),
    "a loop": (
        "h = torch.tanh(self.fc(x)) * 2\nfor i in range(int(n)):\n    h = torch.tanh(self.fc(h)) + 1\nreturn F.softmax(h, -1)",
        "x, n",
        ", torch.tensor(3)",
    ),
    "an assertion": ("assert not x.isnan().any(), 'nan'\nreturn F.softmax(self.fc(x) * 2, -1)", "x", ""),
    "an early end": ("h = torch.tanh(self.fc(x)) * 2\nif h.sum() > 1e6:\n    return h\nreturn F.softmax(h + 1, -1)", "x", ""),
    "a list that grows": (
        "ys = []\nfor i in range(int(n)):\n    x = torch.tanh(self.fc(x)) * 2\n    ys.append(x)\nreturn torch.stack(ys).sum(0)",
        "x, n",
        ", torch.tensor(2)",
    ),
    "submodules": ("for block in self.blocks:\n    x = block(x, limit=0.5)\nreturn F.softmax(self.fc(x), -1)", "x", ""),
    "autocast": (
        "with torch.autocast('cpu', dtype=torch.bfloat16):\n    y = self.fc(x)\nz = F.softmax(y.float() * 2, -1)\nreturn z, z[m].sum(0)",
        "x, m",
        f", {MASK}",
    ),
    "sparse tensors": ("h = torch.tanh(self.fc(x)) * 2\ns = h.relu().to_sparse()\nreturn F.softmax(h + 1, -1), torch.sparse.mm(s, h.t())", "x", ""),
    "two names": (
        "h = torch.tanh(self.fc(x)) * 2\nv = h.view(-1)\nif h.sum() > 1e6:\n    h = h + 1\nv[3:9] = 7.0\nreturn F.softmax(h, -1) + v.sum()",
        "x",
        "",
    ),
    "memory by its strides": ("h = torch.tanh(self.fc(x)) * 2\nh.T.fill_diagonal_(0.5)\nreturn F.softmax(h + 1, -1)", "x", ""),
    "a number in arithmetic": ("s = x.std().item() + 1e-5\nreturn torch.tanh(self.fc(x) / s) * s", "x", ""),
    "a number by float": ("s = float(x.abs().max()) / 127.0\nreturn torch.clamp(torch.round(x / s), -128, 127) * s", "x", ""),
    "a whole number": ("n = int((x > 0).sum())\nreturn torch.exp(-x) * (n // 2) + n % 7 - max(n, 3)", "x", ""),
    "the larger number": (
        "s = x.std().item()\nt = min(1.0, max(s, 1e-6) / max(0.3, s))\nreturn torch.tanh(self.fc(x) / t) * max(int((x > 0).sum()), 3)",
        "x",
        "",
    ),
    "numbers where constants are": (
        "m = x.max().item()\nreturn torch.full_like(x, m) - x, x.clamp(max=m / 2), torch.where(x > 0, m, x), x.masked_fill(x < 0, m)",
        "x",
        "",
    ),
    "a seed": ("h = torch.tanh(self.fc(x)) * 2\ntorch.manual_seed(5)\nreturn F.softmax(h + torch.rand(8, 12), -1)", "x", ""),
    "an exporter's error that forward catches": (
        "h = torch.tanh(self.fc(x)) * 2\ntry:\n    h *= h[: int(h[0].argmax())].sum(0)\nexcept RuntimeError:\n    h -= 9\nreturn F.softmax(h, -1)",
        "x",
        "",
    ),
    "an import": ("import math\nh = torch.tanh(self.fc(x)) * 2\nif h.sum() > 0:\n    h = h * math.pi\nreturn F.softmax(h.exp(), -1)", "x", ""),
    "a function": (
        "def twice(t):\n    return t * 2\nh = torch.tanh(self.fc(x))\nif h.sum() > 0:\n    h = twice(h)\nreturn F.softmax(h.exp(), -1)",
        "x",
        "",
    ),
}  # fmt: skip


def written(body: str, arguments: str, inputs: str, init: str = INIT, before: str = "") -> str:
    lines = "".join(f"        {line}\n" for line in body.split("\n"))
    model = f"class Model(nn.Module):\n{init}\n    def forward(self, {arguments}):\n{lines}\n\n"
    return f"{HEAD}{before}{model}def get_inputs():\n    return [torch.randn(8, 12){inputs}]\n\n\ndef get_init_inputs():\n    return []\n"


def checked(source: str, calls: int = 3):
    """Runs a task's program alongside eager, with different inputs in every call."""
    task = load(source, "task")
    torch.manual_seed(0)
    model, eager = task["Model"](), task["Model"]()
    found = capture(model, task["get_inputs"](), source, "train")
    plan = make_plan(found, source, DeviceFigures.cpu(2))
    text = print_program(plan, source, Options())
    made = load(text, "program")["ModelNew"]()
    made.load_state_dict(eager.state_dict())
    for call in range(calls):
        seed_everything(call)
        inputs = task["get_inputs"]()
        with torch.no_grad():
            seed_everything(call)
            expected = eager(*inputs)
            seed_everything(call)
            got = made(*inputs)
        torch.testing.assert_close(got, expected, rtol=2e-5, atol=2e-5)
    return plan, text


@pytest.mark.parametrize("kind", quick(BODIES, 6))
def test_what_can_be_captured_is_compiled(kind):
    body, arguments, inputs = BODIES[kind]
    init = INIT + ("        self.blocks = nn.ModuleList(Block() for _ in range(2))\n" if kind == "submodules" else "")
    plan, text = checked(written(body, arguments, inputs, init, BLOCK if kind == "submodules" else ""))
    assert plan.own, plan.why_none
    whole = "number" in kind
    assert bool(plan.captured.parts) is not whole and bool(plan.left) is not whole
    assert whole or "Left in Python, because it cannot be captured:\n- line " in text


PLACES = {
    "read": "h = torch.tanh(self.fc(x)) * 2\ni = h[:, 0].argmax()\nreturn h[i] * h[:, h[0].argmin()].mean(), h[-1 - int(n)] + 1, h[..., int(n)]",
    "written": "h = torch.tanh(self.fc(x)) * 2\ni = h[:, 0].argmax()\nh[i] = 3.0\nh[:, i] = x[:, 0]\nh[1:4, n] = x.mean()\nh[i, None, 2] = x[:1, 0]\n"
    "h[i, 5] = x[0, 0]\nh[int(n)] = x[:1]\nreturn h.exp()",
}


@pytest.mark.parametrize("kind", PLACES)
def test_places_that_tensor_values_determine(kind):
    plan, _ = checked(written(PLACES[kind], "x, n", ", torch.randint(1, 4, ())"))
    assert plan.own and not plan.captured.parts and not plan.left


def test_other_sizes_than_those_of_the_capture_are_computed_as_the_task_does():
    source = written("h = torch.tanh(self.fc(x)) * 2\nif h.sum() > 0:\n    h = h.exp() + 1\nreturn F.softmax(h, -1)", "x", "")
    _, text = checked(source)
    program, task = load(text, "program")["ModelNew"](), load(source, "task")["Model"]()
    program.load_state_dict(task.state_dict())
    x = torch.randn(3, 5, 12)
    torch.testing.assert_close(program(x), task(x))


STATES = {
    "a counter": ("self.n += 1\nreturn torch.tanh(self.fc(x) * 2) * self.n", "self.n = 0", "self.n"),
    "a list": ("self.seen.append(x.mean())\nreturn torch.tanh(self.fc(x) * 2) + sum(self.seen)", "self.seen = []", "self.seen"),
    "a variable of the source": ("COUNT[0] += 1\nreturn torch.tanh(self.fc(x) * 2) * COUNT[0]", "pass", "COUNT"),
}


@pytest.mark.parametrize("kind", STATES)
def test_state_outside_of_the_state_dict_stays_python(kind):
    body, init, name = STATES[kind]
    plan, _ = checked(written(body, "x", "", INIT + f"        {init}\n", "COUNT = [0]\n\n\n"))
    assert plan.own and any(name.removeprefix("self.") in why for why in plan.left)


def test_a_tensor_as_plain_attribute_is_state_of_the_program():
    body = "self.hidden = torch.tanh(self.fc(x) + self.hidden * 0.5)\nreturn self.hidden * 2"
    plan, _ = checked(written(body, "x", "", INIT + "        self.hidden = torch.zeros(8, 12)\n"))
    assert plan.captured.mutations == {"hidden": plan.captured.mutations["hidden"]} and not plan.captured.parts


def test_state_becomes_an_input_of_a_part():
    body = "if x.sum() > 1e6:\n    x = x + 1\nh = torch.tanh(self.fc(x)) * self.last + 1\nself.last.copy_(y)\nreturn F.softmax(h, -1)"
    checked(written(body, "x, y", ", torch.randn(12)", INIT + "        self.register_buffer('last', torch.zeros(12))\n"))


# what the first call does not do: the branch for large inputs, which changes state that a later part reads
UNTAKEN = {
    "a list": ("self.seen.append(1)", "len(self.seen)", "self.seen = []"),
    "a list by another name": ("seen = self.seen\n    seen.append(1)", "len(self.seen)", "self.seen = []"),
    "an attribute of a layer": ("layer = self.fc\n    layer.gain = 3.0", "self.fc.gain", "self.fc.gain = 1.0"),
    "an attribute of any layer": ("for layer in [self.fc]:\n        layer.gain = 3.0", "self.fc.gain", "self.fc.gain = 1.0"),
    "a tensor": ("self.gain.mul_(3)", "self.gain", "self.gain = torch.ones(12)"),
    "an object": ("self.meter.store(3.0)", "self.meter.last", "self.meter = Meter()"),
    "an object that is called": ("self.meter(3.0)", "self.meter.last", "self.meter = Meter()"),
}
METER = (
    "class Meter:\n    def __init__(self):\n        self.last = 1.0\n\n    def store(self, x):\n        self.last = x\n\n"
    "    def __call__(self, x):\n        self.store(x)\n\n\n"
)


@pytest.mark.parametrize("kind", UNTAKEN)
def test_state_that_only_later_calls_change_stays_python(kind):
    change, read, init = UNTAKEN[kind]
    body = f"h = torch.relu(self.fc(x))\nif x.sum() > 1e3:\n    {change}\ny = torch.tanh(h) * 2 + {read}\nreturn torch.softmax(y, -1) * {read}"
    source = written(body, "x", "", INIT + f"        {init}\n", METER)
    task = load(source, "task")
    torch.manual_seed(0)
    found = capture(task["Model"](), task["get_inputs"](), source, "train")
    made, eager = load(print_program(make_plan(found, source, DeviceFigures.cpu(2)), source, Options()), "program")["ModelNew"](), task["Model"]()
    made.load_state_dict(eager.state_dict())
    for scale in (1, 100, 1):
        x = torch.rand(8, 12) * scale
        with torch.no_grad():
            torch.testing.assert_close(made(x.clone()), eager(x), rtol=2e-5, atol=2e-5)


def test_state_is_read_before_the_call_that_changes_it():
    update = "\n    def update(self, x):\n        self.h = torch.tanh(self.fc(x)) + self.h * 0.5\n        return self.h\n"
    body = "y = self.h + self.update(torch.relu(x) * 2)\nif y.sum() > 0:\n    y = y * 2\nreturn torch.softmax(y, -1) + 1"
    plan, _ = checked(written(body, "x", "", INIT + "        self.h = torch.zeros(8, 12)\n" + update))
    assert plan.own


def test_an_attribute_is_read_before_the_call_that_changes_it():
    before = (
        "class Cell:\n    def __init__(self):\n        self.last = 1.0\n\n    def step(self, x):\n        self.last = self.last * 0.5 + 3\n"
        "        return x * self.last\n\n\n"
    )
    body = "c = Cell()\nif x.sum() > -1e9:\n    c = c\ny = c.last + c.step(torch.relu(self.fc(x)) * 2 + 1)\nreturn torch.softmax(y, -1) * c.last + y"
    plan, _ = checked(written(body, "x", "", before=before))
    assert plan.own


def test_variables_that_are_read_by_name_are_there():
    body = "h = torch.tanh(self.fc(x)) * 2\nif h.sum() > 0:\n    h = h + 1\nk = h.exp() * 2\nz = torch.softmax(k, -1)\nreturn z, len(locals())"
    checked(written(body, "x", ""))


def test_a_forward_that_an_instance_replaces_is_called():
    init = "        self.block = Block()\n        before = self.block.forward\n        self.block.forward = lambda x: before(x) * 3\n"
    checked(written("y = self.block(self.fc(x))\nreturn torch.softmax(y, -1) * 2 + y", "x", "", INIT + init, BLOCK))


@pytest.mark.parametrize("branch", ["", "if h.sum() > 0:\n            h = h + 1\n        "])
def test_default_values_that_a_method_changes_are_state(branch):
    mixed = f"\n    def mixed(self, x, seen=[]):\n        seen.append(1)\n        h = torch.tanh(self.fc(x)) * len(seen)\n        {branch}return h\n"
    plan, _ = checked(written("y = self.mixed(x)\nreturn torch.softmax(y * 2, -1) + 1", "x", "", INIT + mixed))
    assert plan.own and any("Model.mixed" in why or "branch" in why for why in plan.left), plan.left


def test_a_cache_that_changes_nothing_is_no_state():
    body = "if self.row is None:\n    self.row = torch.arange(12.0).cos()\nreturn torch.tanh(self.fc(x)) * self.row"
    plan, _ = checked(written(body, "x", "", INIT + "        self.row = None\n"))
    assert not plan.captured.parts and not plan.left


SIZES = {
    "a cache and its size": ("if x.shape[0] > self.n:\n    self.n, self.row = x.shape[0], torch.arange(12.0).cos()\n", "self.row", True),
    "a number of calls": ("self.n = min(self.n + 1, 2)\n", "self.n", False),
    "a number of the first inputs": ("if self.n == 0:\n    self.n = int(i[0]) + 1\n", "self.n", False),
    "a number of the first inputs instead of None": ("if self.row is None:\n    self.row = int(i[0]) + 1\n", "self.row", False),
}


@pytest.mark.parametrize("kind", SIZES)
def test_only_a_number_that_stays_after_the_first_call_is_no_state(kind):
    body, factor, whole = SIZES[kind]
    init = f"{INIT}        self.n, self.row = 0, None\n"
    plan, _ = checked(written(f"{body}h = torch.tanh(self.fc(x)) * 2\nreturn h * {factor}", "x, i", ", torch.randint(1, 9, (3,))", init))
    assert plan.own and bool(plan.captured.parts) is not whole and bool(plan.left) is not whole, plan.left


def test_what_functions_remember_is_not_the_exporters():
    """A memoised function creates the mask, within a forward that cannot be captured as a whole."""
    before = "import functools\n\n\n@functools.cache\ndef mask(n):\n    return torch.ones(n, n).tril()\n\n\n"
    plan, _ = checked(
        written(
            "h = torch.tanh(self.fc(x)) @ mask(12)\nif h.sum() > 0:\n    h = h * 2\nreturn F.softmax(h + mask(12)[0], -1)", "x", "", before=before
        )
    )
    assert plan.own and [why.partition(": ")[2] for why in plan.left] == ["a branch, an index or a size depends on tensor values"]


def test_matrices_are_inverted_by_the_library():
    plan, text = checked(
        written("a = torch.tanh(x[:, :8]) + 9 * torch.eye(8)\nreturn torch.linalg.inv(a) * 2 + torch.linalg.solve(a, a) + 1", "x", "")
    )
    assert not plan.captured.parts and plan.own and "linalg_inv" in text


def test_what_a_script_module_stands_beside_is_captured():
    body = "h = torch.tanh(self.fc(x)) * 2\nh = self.script(h)\nreturn F.softmax(h + 1, -1)"
    plan, _ = checked(written(body, "x", "", INIT + "        self.script = torch.jit.script(nn.Linear(12, 12))\n"))
    assert plan.own and plan.left == ["line 14: a script module (torch.jit.script) cannot be inspected"]


def test_gradients_in_forward_are_told_with_their_line():
    body = "with torch.enable_grad():\n    p = x.detach().requires_grad_()\n    g = torch.autograd.grad(self.fc(p).sum(), p)[0]\nreturn g"
    source = written(body, "x", "")
    task = load(source, "task")
    assert capture(task["Model"](), task["get_inputs"](), source, "train").reason.startswith("line 12: gradients are computed inside forward")


def test_a_script_module_is_named_as_the_cause():
    source = written("return self.script(x) + 1", "x", "", INIT + "        self.script = torch.jit.script(nn.Linear(12, 12))\n")
    task = load(source, "task")
    found = capture(task["Model"](), task["get_inputs"](), source, "train")
    assert found.graph is None and found.reason == "line 13: a script module (torch.jit.script) cannot be inspected"
    assert found.reason in print_program(make_plan(found, source, DeviceFigures.cpu(2)), source, Options())


@pytest.mark.parametrize("where", ["in forward", "in the module"])
def test_a_default_type_is_set_where_the_task_sets_it(compiled, task, where):
    """Captured parts must not swallow the call, and the memory of kernels keeps its type under a different default."""
    if where == "in forward":
        lines = ["torch.set_default_dtype(torch.float64)", "t = torch.linspace(0, 1, 16)", "torch.set_default_dtype(torch.float32)"]
        found = compiled(
            task("\n".join([*lines, "return F.silu(self.fc(x)) * t.to(x.dtype), x.mean(1), t"]), "torch.randn(2, 16)", "self.fc = nn.Linear(16, 16)")
        )
        assert found.text.count("torch.set_default_dtype(") == 2
    else:
        source = task("return F.silu(x) * 2, x.mean(1)", "torch.randn(40, 16, dtype=torch.float32)")
        found = compiled(source.replace("class Model", "torch.set_default_dtype(torch.float64)\n\n\nclass Model"))
    try:
        found.check()
    finally:
        torch.set_default_dtype(torch.float32)


SETTINGS = {
    "a default type": "torch.set_default_dtype(torch.float64)\nt = torch.linspace(0, 1, 12) * 2 + 1\nt = t.cumsum(0)\n"
    "torch.set_default_dtype(torch.float32)\nreturn torch.softmax(self.fc(x), -1) * t",
    "autocast": "c = torch.autocast('cpu', dtype=torch.bfloat16)\nif x.sum() > -1e9:\n    c.__enter__()\ny = torch.relu(self.fc(x)) * 2\n"
    "c.__exit__(None, None, None)\nreturn y, torch.softmax(x, -1) * 2",
}


@pytest.mark.parametrize("kind", SETTINGS)
def test_statements_under_other_settings_stay_python(kind):
    plan, _ = checked(written(SETTINGS[kind], "x", ""))
    assert any("around it, which a part cannot express" in why for why in plan.left)


def test_a_step_of_a_statement_is_told_in_the_words_of_the_source():
    body = "h = torch.tanh(self.fc(x)) * 2\nr = [(h > 0.5).float().mean().item()]\nreturn F.softmax(h, -1), math.sqrt(max(r)) + r[0] * 2"
    plan, _ = checked(written(body, "x", "", before="import math\n\n\n"))
    assert plan.left and not any("step_" in line for line in plan.left), plan.left
    assert any("`(h > 0.5).float().mean().item()` has a size or value that depends on data" in line for line in plan.left), plan.left


def test_a_loop_over_a_plain_list_is_captured_pass_by_pass():
    before = (
        "class Scaled:\n    def __init__(self, by):\n        self.by = by\n\n"
        "    def __call__(self, t):\n        return torch.tanh(t * self.by) + 1\n\n\n"
        "def halved(t):\n    return t / 2 if t.sum() > 0 else t\n\n\n"
    )
    init = f"{INIT}        self.steps, self.powers = [Scaled(2.0), Scaled(0.5), halved], (2, 3)\n"
    body = "h = self.fc(x)\nfor step, power in zip(self.steps, self.powers):\n    h = step(h) ** power\nfor f in self.steps:\n    h = f(h)\nreturn h"
    plan, _ = checked(written(body, "x", "", init, before))
    assert plan.own and len(plan.captured.parts) == 1 and len(plan.left) == 1, plan.left


def test_buffers_that_are_the_indices_of_a_sparse_matrix():
    names = ("crow_indices", "col_indices", "values")
    init = f"{INIT}        m = torch.eye(12).to_sparse_csr()\n" + "".join(f"        self.register_buffer('{name}', m.{name}())\n" for name in names)
    made = f"m = torch.sparse_csr_tensor({', '.join(f'self.{name}' for name in names)}, (12, 12))"
    plan, _ = checked(written(f"{made}\nh = torch.tanh(self.fc(x)) * 2\nreturn F.softmax(m @ h.t(), -1)", "x", "", init))
    sparse = "sparse tensors are left to PyTorch"
    assert plan.own and plan.left == [f"line 16: {sparse}", f"line 18: {sparse}"], plan.left
