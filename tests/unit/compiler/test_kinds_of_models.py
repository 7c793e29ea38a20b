"""Models with quantised tensors, `torch.compile` in their source, custom tensor classes, or transforms: the rest is captured, or the cause is
reported in the model's own terms."""

import builtins

import pytest
import torch

from compiler import DeviceFigures, Options, make_plan, print_program
from tests.unit.compiler.loading import load
from verifier.parties.capturing.capture import capture
from verifier.parties.capturing.reasons import reason
from verifier.parties.loading import unusable

HEAD = "import torch\nimport torch.nn as nn\nfrom torch.func import grad, vmap\n\n\n"
MODEL = (
    "class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.fc = nn.Linear(8, 8)\n\n"
    "    def forward(self, x):\n{body}\n"
)
TAGGED = "class Tagged(torch.Tensor):\n    pass\n\n\n"


def captured(body: str, before: str = ""):
    source = HEAD + before + MODEL.format(body="\n".join(f"        {line}" for line in body.splitlines()))
    names = load(source, "task")
    torch.manual_seed(0)
    model, x = names["Model"](), torch.randn(6, 8)
    return source, model, x, capture(model, [x], source, "train")


def checked(body: str, before: str = ""):
    source, model, x, found = captured(body, before)
    program = load(print_program(make_plan(found, source, DeviceFigures.cpu(2)), source, Options()), "program")["ModelNew"]()
    program.load_state_dict(model.state_dict())
    with torch.no_grad():
        for got, expected in zip(program(x), model(x), strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)
    return found


@pytest.mark.slow
def test_a_quantised_tensor_stays_quantised():
    """The exporter represents a quantised tensor by a tensor of floats, on which `int_repr` fails."""
    body = "h = torch.relu(self.fc(x)) * 1.5\nq = torch.quantize_per_tensor(h, 0.05, 3, torch.quint8)\n"
    found = checked(body + "return q.dequantize() + torch.sigmoid(h), q.int_repr()")
    assert any("quantised tensors are left to PyTorch" in why for why in found.graph.left)


@pytest.mark.parametrize(
    ("before", "question"),
    [("", "torch.compiler.is_exporting()"), ("from torch.compiler import is_compiling as busy\n\n\n", "busy()")],
    ids=["attribute", "imported"],
)
def test_an_export_takes_the_branches_of_a_call(before, question):
    found = checked(f"h = torch.relu(self.fc(x))\nif not {question}:\n    h = h * 2 + 1\nreturn h.softmax(-1),", before)
    assert found.graph is not None and not found.graph.left


@pytest.mark.slow
def test_what_is_compiled_in_the_source_still_compiles_after_a_capture():
    before = "@torch.compile(fullgraph=True)\ndef fused(x, y):\n    return torch.relu(x) * y.sigmoid()\n\n\n"
    found = checked("return fused(self.fc(x), x) + 1,", before)
    assert found.graph is not None and not found.graph.left and found.flops


@pytest.mark.parametrize(
    ("body", "before", "why"),
    [
        ("f = grad(lambda p: self.fc(p).tanh().sum())\nreturn vmap(f)(x)", "", "a transform of torch.func"),
        ("return torch.relu(self.fc(x).as_subclass(Tagged)).as_subclass(torch.Tensor)", TAGGED, "tensors of a class of the source's own"),
    ],
    ids=["transform", "subclass"],
)
def test_the_cause_is_told_in_words_of_the_model(body, before, why):
    found = captured(body, before)[-1]
    told = [found.reason or "", *(found.graph.left if found.graph is not None else [])]
    assert any(why in one for one in told), told
    assert not any("Error" in one for one in told)


def test_packed_weights_in_the_state_dict_are_refused():
    """Packed weights are not tensors, so they cannot be passed to any program."""

    class Packed(torch.nn.Module):
        def get_extra_state(self):
            return (torch.ones(2), None)

        def set_extra_state(self, state):
            pass

    assert unusable(torch.nn.Sequential(Packed())) == (
        "0._extra_state of the state dict is a tuple of tensors, which no program can be given; keep its tensors as parameters or buffers"
    )


def test_variables_of_comprehensions_and_functions_are_not_results():
    """A variable within a comprehension or a function may have the same name as another statement's result, without being that result."""
    body = (
        "def twice(t):\n    z = t * 2\n    return z\na, b = (y.tanh() * 2 for y in self.fc(x).split(4, -1))\nb = twice(b).exp() + 1\n"
        "if a.sum() > 0:\n    a = a + 1\ny = torch.softmax(a * b, -1)\nz = y * 3\nreturn z + y, b"
    )
    assert not any("without a value" in why for why in checked(body).graph.left)


def test_changes_of_data_are_captured():
    """Moving averages written to `.data`, as in older sources."""
    body = (
        "h = torch.relu(self.fc(x)) + 1\nself.fc.bias.data.mul_(0.5).add_(h.mean(0), alpha=0.1)\n"
        "self.fc.weight.data.copy_(self.fc.weight.data * 0.9)\nreturn h.softmax(-1), self.fc.bias * 2"
    )
    found = checked(body)
    assert not found.graph.left and set(found.graph.mutations) == {"fc.bias", "fc.weight"}


def test_other_memory_for_a_tensor_stays_in_python():
    body = "h = torch.tanh(self.fc(x)) * 2\nself.fc.bias.data = self.fc.bias.data * 0.5\nreturn (h + self.fc.bias).softmax(-1),"
    assert any("other memory" in why for why in checked(body).graph.left)


@pytest.mark.parametrize(
    ("error", "why"),
    [
        ("RuntimeError: We found a fake tensor in the exported program constant's list.", "it keeps a tensor of the export"),
        ("ValueError: it becomes a call of `_jvp_increment_nesting`, which is no operator on tensors", "a transform of torch.func"),
        ("TypeError: unsupported format string passed to FakeTensor.__format__", "it writes the value of a tensor into a text"),
        ("AssertionError: expected compiled_fn to be GraphModule, got <class 'function'>", "it leaves nothing to compute"),
        ("RecursionError: maximum recursion depth exceeded", "its functions call each other too deeply"),
        ("RuntimeError: torch.functional is fine", "PyTorch's exporter cannot follow it"),
    ],
)
def test_errors_of_the_exporter_become_causes(error, why):
    kind, _, text = error.partition(": ")
    assert reason(getattr(builtins, kind)(text)).startswith(why)


TIMED = (
    "import functools\nimport time\n\n\ndef timed(f):\n    @functools.wraps(f)\n    def run(self, x):\n        start = time.perf_counter()\n"
    "        out = f(self, x)\n        took = (time.perf_counter() - start) * 1e3\n        self.__dict__['took'] = round(took, 2)\n"
    "        print(f'{{took:.2f}} ms')\n        return {}\n\n    return run\n\n\n"
)


@pytest.mark.parametrize(("result", "whole"), [("out", True), ("out + took", False), ("out if took < 1e9 else -out", False), ("(*out, took)", False)])
def test_forward_may_measure_its_time_but_not_use_it(result, whole):
    source = (
        HEAD
        + TIMED.format(result)
        + MODEL.format(body="        return torch.relu(self.fc(x)) * 2 + 1").replace("    def fo", "    @timed\n    def fo")
    )
    torch.manual_seed(0)
    model = load(source, "task")["Model"]()
    found = capture(model, [torch.randn(6, 8)], source, "train")
    assert (found.graph is not None and not found.graph.left) == whole
    assert whole or "forward reads the clock" in found.reason


@pytest.mark.parametrize("name", ["code", "graph", "meta"])
def test_names_that_a_graph_module_has_itself(name):
    """PyTorch's exporter builds a graph module with the model's attributes, but under these names it finds the graph module's own."""
    source = HEAD + MODEL.format(body=f"        return torch.relu(self.fc(x) @ self.{name}.weight) + 1,")
    source = source.replace("self.fc = nn.Linear(8, 8)\n", f"self.fc = nn.Linear(8, 8)\n        self.{name} = nn.Embedding(8, 8)\n")
    torch.manual_seed(0)
    model, x = load(source, "task")["Model"](), torch.randn(6, 8)
    found = capture(model, [x], source, "train")
    assert found.graph is not None and not found.graph.left, found.reason
    program = load(print_program(make_plan(found, source, DeviceFigures.cpu(2)), source, Options()), "program")["ModelNew"]()
    program.load_state_dict(model.state_dict())
    torch.testing.assert_close(program(x)[0], model(x)[0])


def test_another_name_for_self_is_none_in_parts():
    before = "class Half(nn.Module):\n    k = 1.0\n\n    def forward(me, x):\n        me.k *= 0.5\n        return x * me.k\n\n\n"
    body = (
        "h = torch.tanh(self.fc(x)) * 2\nif h.sum() > 0:\n    h = self.g(h) + 1\nf = lambda t: self.fc(t).relu() + 1\nreturn torch.softmax(f(h), -1),"
    )
    source = HEAD + before + MODEL.format(body="\n".join(f"        {line}" for line in body.splitlines()))
    source = source.replace("nn.Linear(8, 8)\n", "nn.Linear(8, 8)\n        self.g = Half()\n").replace("self", "this")
    torch.manual_seed(0)
    model, x = load(source, "task")["Model"](), torch.randn(6, 8)
    found = capture(model, [x], source, "train")
    assert len(found.graph.parts) > 1 and any("it uses g.k, which forward changes" in why for why in found.graph.left), found.graph.left
    program = load(print_program(make_plan(found, source, DeviceFigures.cpu(2)), source, Options()), "program")["ModelNew"]()
    program.load_state_dict(model.state_dict())
    for _ in range(2):
        torch.testing.assert_close(program(x)[0], model(x)[0])


@pytest.mark.slow
def test_arguments_that_share_memory_are_changed_together():
    """The exporter cannot express shared memory, but the captured parts see each other's changes."""
    body = "y.add_(1)\nh = torch.tanh(self.fc(x)) * 2\nz[1].mul_(2)\nreturn (h + x).softmax(-1), z[0] * 3 + 1"
    source = HEAD + MODEL.format(body="\n".join(f"        {line}" for line in body.splitlines())).replace("(self, x)", "(self, x, y, z)")
    torch.manual_seed(0)
    model = load(source, "task")["Model"]()

    def inputs():
        x, z = torch.ones(6, 8), torch.ones(9, 8)
        return [x, x, [z[:6], z[3:]]]

    found = capture(model, inputs(), source, "train")
    assert any("in place a tensor that also has another name" in why for why in found.graph.left), found.graph.left
    program = load(print_program(make_plan(found, source, DeviceFigures.cpu(2)), source, Options()), "program")["ModelNew"]()
    program.load_state_dict(model.state_dict())
    with torch.no_grad():
        for got, expected in zip(program(*inputs()), model(*inputs()), strict=True):
            torch.testing.assert_close(got, expected)


@pytest.mark.parametrize(("step", "whole"), [(1, True), (2, False)])
def test_memory_between_the_elements_of_an_argument_stays_with_pytorch(step, whole):
    body = "h = torch.tanh(self.fc(x)) * 2\nw = x.as_strided((5, 2, 8), (x.stride(0), x.stride(0), x.stride(1)))\nreturn h.softmax(-1), w.sum(1) + 1"
    source = HEAD + MODEL.format(body="\n".join(f"        {line}" for line in body.splitlines()))
    torch.manual_seed(0)
    model, x = load(source, "task")["Model"](), torch.randn(6, 8 * step)[:, ::step]
    found = capture(model, [x], source, "train")
    assert found.graph.left == ([] if whole else ["line 13: as_strided reads an argument whose elements do not lie side by side in memory"])
    program = load(print_program(make_plan(found, source, DeviceFigures.cpu(2)), source, Options()), "program")["ModelNew"]()
    program.load_state_dict(model.state_dict())
    with torch.no_grad():
        for got, expected in zip(program(x), model(x), strict=True):
            torch.testing.assert_close(got, expected)


def test_parts_name_the_class_in_super():
    before = "class Base(nn.Module):\n    def twice(self, x):\n        return x * 2\n\n\n"
    body = "h = torch.tanh(self.fc(x)) + 1\nif h.sum() > 1e6:\n    h = h * 0\n"
    source = (
        HEAD
        + before
        + MODEL.format(
            body="\n".join(f"        {line}" for line in (body + "return [super(Model, self).twice(t) for t in (h, x)]").splitlines())
        ).replace("Model(nn.Module)", "Model(Base)")
    )
    torch.manual_seed(0)
    model, x = load(source, "task")["Model"](), torch.randn(6, 8)
    found = capture(model, [x], source, "train")
    assert found.graph is not None and found.graph.parts
    program = load(print_program(make_plan(found, source, DeviceFigures.cpu(2)), source, Options()), "program")["ModelNew"]()
    program.load_state_dict(model.state_dict())
    for got, expected in zip(program(x), model(x), strict=True):
        torch.testing.assert_close(got, expected)


def test_results_of_an_own_class_of_tensors_keep_it():
    body = "h = torch.relu(self.fc(x)) * 2\nt = h.as_subclass(Tagged)\nif x.sum() > -1e9:\n    t = t\nk = torch.exp(-t) + 1\n"
    checked(body + "v = 3.0 if type(k) is Tagged else 5.0\nreturn torch.softmax(h, -1) * v,", TAGGED)


def test_state_that_changes_is_told_with_its_line():
    *_, found = captured("y = torch.sigmoid(x) * State.gain\nState.gain = State.gain * 2\nreturn y,", "class State:\n    gain = 1.0\n\n\n")
    assert found.reason.startswith("line 17: forward changes State.gain outside the state dict"), found.reason
