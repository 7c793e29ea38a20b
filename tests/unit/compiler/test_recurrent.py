"""Recurrent layers compared with PyTorch, in the emulator with all blocks live at the same time: kinds, directions, layouts, results, tunable
parameters; unrolled loops."""

import pytest
from torch._decomp import decompositions

from compiler import DeviceFigures, Options, print_program
from compiler.families.recurrent import recurrent
from compiler.planning.knobs import numbers
from tests.emulator import as_cpp
from tests.unit.compiler.loading import load
from verifier.parties.capturing.capture import capture

SMALL = DeviceFigures.h200().model_copy(update={"units": 6})


@pytest.fixture(autouse=True)
def short_sequences_too(monkeypatch):
    monkeypatch.setattr(recurrent, "LIBRARY_US", 1e6)


@pytest.fixture
def emulated(compiled):
    def run(source: str, options: Options | None = None, figures: DeviceFigures = SMALL):
        found = compiled(source, figures=figures, options=options)
        found.text = quickly(print_program(found.plan, source, options or opened(found.plan)))
        return found

    return run


def quickly(program: str) -> str:
    """Compiles with less optimisation, because these kernels unroll into thousands of lines."""
    return as_cpp(program).replace('("cpp", SOURCE)', '("cpp", SOURCE, ("-O1",))')


def opened(plan):
    """Returns options with the gates of all of the family's groups open."""
    options = Options()
    for group in plan.groups:
        if group.family == "recurrent":
            options = options.choose("persistent-recurrence", group.id, True)
    return options


QUICK = ("lstm-both-directions",)
LAYERS = {
    "lstm": ("nn.LSTM(8, 12, 3)", "self.net(x)[0]", "torch.randn(5, 3, 8)"),
    "lstm-results": ("nn.LSTM(8, 12, 2, batch_first=True)", "self.net(x)", "torch.randn(3, 4, 8)"),
    "lstm-both-directions": ("nn.LSTM(20, 8, 2, bidirectional=True, batch_first=True)", "self.net(x)", "torch.randn(2, 4, 20)"),
    "gru": ("nn.GRU(8, 16, 3, bias=False)", "self.net(x)[1]", "torch.randn(5, 2, 8)"),
    "gru-both-directions": ("nn.GRU(12, 8, 2, bidirectional=True)", "self.net(x)", "torch.randn(4, 3, 12)"),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in LAYERS])
def test_layers(emulated, task, name):
    module, body, inputs = LAYERS[name]
    found = emulated(task(f"return {body}", inputs, f"self.net = {module}"))
    assert "recurrent" in [group.family for group in found.plan.groups], [group.reason for group in found.plan.groups]
    launcher = found.text.split('extern "C"')[1]
    assert "cudaLaunchCooperativeKernel" in launcher and "const int shared = most / 2 + 2048 > " in launcher, "a multiprocessor for each block"
    found.check()


@pytest.mark.parametrize("precision", ["bf16", pytest.param("fp16", marks=pytest.mark.slow)])
def test_layers_of_16_bit_values(compiled, task, precision):
    """Sums, states and values exchanged between blocks are in fp32, so the error is barely more than that of rounding the results once."""
    body = "y, (h, c) = self.net(x, (h, c))\nreturn torch.relu(y), h, c"
    init = "self.net = nn.LSTM(8, 12, 2, batch_first=True)"
    source = task(body, "torch.randn(3, 4, 8), torch.randn(2, 3, 12), torch.randn(2, 3, 12)", init, "x, h, c")
    found = compiled(source, figures=SMALL, precision=precision)
    assert [group.family for group in found.plan.groups] == ["recurrent"], [group.reason for group in found.plan.groups]
    found.text = quickly(print_program(found.plan, source, opened(found.plan)))
    assert f"const {precision} *input[2], *hidden[2]" in found.text
    found.check()


LOOP = """hidden, outputs = h, []
for step in range(x.shape[0]):
    hidden = torch.tanh(self.cell(torch.cat((x[step], hidden), dim=1)))
    outputs.append(self.out(hidden))
return torch.relu(torch.stack(outputs)) + 1, hidden"""
LOOPS = {
    "by-hand": (LOOP, "self.cell = nn.Linear(20, 12)\nself.out = nn.Linear(12, 7)", "torch.randn(5, 3, 8), torch.randn(3, 12)"),
    "hidden-first": (LOOP.replace("x[step], hidden", "hidden, x[step]"), "self.cell = nn.Linear(20, 12, bias=False)\nself.out = nn.Tanh()",
                     "torch.randn(5, 3, 8), torch.randn(3, 12)"),
    "module": ("return self.net(x, h)", "self.net = nn.RNN(8, 12, 2, nonlinearity='relu')", "torch.randn(4, 5, 8), torch.randn(2, 5, 12)"),
}  # fmt: skip


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name == "by-hand" else pytest.mark.slow) for name in LOOPS])
def test_unrolled_loops_are_rolled_up(emulated, compiled, task, name):
    body, init, inputs = LOOPS[name]
    source = task(body, inputs, init, "x, h")
    found = emulated(source)
    kinds = [group.family for group in found.plan.groups]
    assert kinds.count("recurrent") == 1 and len(kinds) <= 6, [group.title for group in found.plan.groups]
    found.check()
    if name == "by-hand":
        library = compiled(source)
        assert "rnn_tanh" in library.text
        library.check()


def test_unrolled_loops_over_16_bit_values(compiled, task):
    body, init, inputs = LOOPS["by-hand"]
    source = task(body, inputs, init, "x, h")
    found = compiled(source, figures=SMALL, precision="bf16")
    assert [group.family for group in found.plan.groups].count("recurrent") == 1 and len(found.plan.groups) <= 6
    found.text = quickly(print_program(found.plan, source, opened(found.plan)))
    found.check()


def test_what_is_no_whole_loop_stays(compiled, task):
    """A loop over only some of the steps is not converted, nor is one whose weights change."""
    init = "self.a, self.b = nn.Linear(12, 4), nn.Linear(12, 4)"
    for body in ("for t in range(4):\n    h = torch.tanh(self.a(torch.cat((x[t], h), 1)))\nreturn h",
                 "for t in range(5):\n    h = torch.tanh((self.b if t == 3 else self.a)(torch.cat((x[t], h), 1)))\nreturn h"):  # fmt: skip
        found = compiled(task(body, "torch.randn(5, 3, 8), torch.randn(3, 4)", init, "x, h"), figures=SMALL)
        assert "recurrent" not in [group.family for group in found.plan.groups]


def test_a_tail_goes_with_the_hidden_states(emulated, task):
    body = "y, (h, c) = self.net(x)\nreturn torch.relu(y) * self.w, h, torch.tanh(c)"
    init = "self.net = nn.LSTM(4, 8, 2, batch_first=True)\nself.w = nn.Parameter(torch.randn(8))"
    found = emulated(task(body, "torch.randn(3, 5, 4)", init))
    group = next(group for group in found.plan.groups if group.family == "recurrent")
    assert len(group.operators) == 6, group.kinds  # the layer, its three results, relu and mul
    found.check()


@pytest.mark.slow
def test_states_that_are_given(emulated, task):
    init = "self.net = nn.LSTM(4, 8, 2)"
    found = emulated(task("return self.net(x, (h[:2], h[2:]))", "torch.randn(5, 3, 4), torch.randn(4, 3, 8)", init, "x, h"))
    found.check()


NUMBERS = {"lstm": ("nn.LSTM(12, 20, 4)", 12), "gru": ("nn.GRU(8, 12, 3, bidirectional=True)", 8)}


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name == "lstm" else pytest.mark.slow) for name in NUMBERS])
def test_every_number_of_a_recurrence(compiled, task, name):
    """Sets several parameters at the same time; fewer layers run concurrently if no more fit."""
    module, inputs = NUMBERS[name]
    source = task("return self.net(x)", f"torch.randn(3, 6, {inputs})", f"self.net = {module}")
    found = compiled(source, figures=DeviceFigures.h200().model_copy(update={"units": 15}))
    options = opened(found.plan)
    known = numbers(found.plan, source, options)
    assert {number.name.rpartition(".")[2] for number in known} == {"units", "warp-units", "batch-parts"}
    for at in range(max(len(number.values) for number in known)):
        changed = options
        for number in known:
            changed = changed.with_knob(number.name.rpartition(".")[2], number.values[at % len(number.values)], number.groups[0])
        found.text = quickly(print_program(found.plan, source, changed))
        found.check()


def test_what_is_left_to_the_library_and_why(compiled, task):
    for module, reason in (("nn.LSTM(8, 12, proj_size=4)", "projections"), ("nn.GRU(8, 14)", "multiples of 4"),
                           ("nn.LSTM(8, 2048)", "registers"), ("nn.GRU(8, 12, 2, dropout=0.5)", "dropout")):  # fmt: skip
        found = compiled(task("return self.net(x)", "torch.randn(4, 2, 8)", f"self.net = {module}"), figures=SMALL)
        assert any(reason in group.reason for group in found.plan.groups), [group.reason for group in found.plan.groups]
        assert "recurrent" not in [group.family for group in found.plan.groups]


@pytest.mark.parametrize(("kind", "layer"), [("LSTM", "lstm"), ("GRU", "gru"), ("RNN", "rnn_tanh")])
def test_recurrences_are_captured_by_shape_where_pytorch_would_go_through_their_steps(monkeypatch, task, kind, layer):
    """Captures a layer as on every device except the CPU: on the CPU, PyTorch 2.11 also returns an LSTM's last states with one axis too many."""
    own = "one_layer_lstm" if kind == "LSTM" else "one_layer_rnn"
    before = getattr(decompositions, own)
    monkeypatch.setattr(decompositions, "select_one_layer_lstm_function", lambda *args: decompositions.one_layer_lstm)
    for cell in ("lstm_cell", "gru_cell"):
        monkeypatch.setattr(decompositions, cell, None)  # no step is executed
    states = "self.net(x)[1][0]" if kind == "LSTM" else "self.net(x)[1]"
    source = task(f"return {states}[-1] * 2", "torch.randn(3, 5, 8)", f"self.net = nn.{kind}(8, 12, 2, batch_first=True, bidirectional=True)")
    names = load(source, "task")
    found = capture(names["Model"](), names["get_inputs"](), source, "train")
    shapes = {node.name: [tuple(spec.shape) for spec in node.outputs] for node in found.graph.nodes}
    assert shapes[layer] == [(3, 5, 24), *[(4, 3, 12)] * (2 if kind == "LSTM" else 1)] and shapes["mul"] == [(3, 12)]
    assert getattr(decompositions, own) is before
