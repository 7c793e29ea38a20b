"""Operators that draw random numbers: a program makes every draw that eager PyTorch makes, in the same order."""

import pytest
import torch

from verifier.draws import draws

CASES = {
    "a sum of draws": "a = torch.multinomial(x.softmax(-1), 1)\nb = torch.rand_like(x)\nreturn x.sort(-1)[0].softmax(-1), a, (x + b).exp()",
    "a draw that is read late": "a = torch.randn_like(x)\nb = torch.rand_like(x)\nc = (x * b).exp()\nreturn c, (x + a).relu(), a * c",
    "a draw that is not read": "torch.rand(7)\nh = F.dropout(x, 0.1)\nreturn (x + torch.randn_like(x)).exp()",
    "a hard choice": (
        "s, i = (x / 0.8).sort(-1, descending=True)\np = torch.zeros_like(x).scatter(-1, i, s.softmax(-1))\n"
        "return torch.multinomial(p, 1), F.gumbel_softmax(x / 0.8, hard=True).argmax(-1)"
    ),
    "draws around a row": "a = torch.rand_like(x)\nh = x.softmax(-1) + a\nb = torch.rand_like(x) * h\nreturn F.dropout(b, 0.3).relu() + h",
}


@pytest.mark.parametrize("name", CASES)
def test_draws_have_the_order_of_the_source(compiled, task, name):
    found = compiled(task(CASES[name], "torch.randn(40, 60)"))
    assert found.own
    program = found.make(_program(found))
    for seed in range(3):
        torch.manual_seed(seed)
        expected = found.model(*found.inputs)
        torch.manual_seed(seed)
        got = program(*found.inputs)
        for a, b in zip(*([v] if isinstance(v, torch.Tensor) else v for v in (got, expected)), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def _program(found):
    from tests.unit.compiler.loading import load

    return load(found.text, "program")["ModelNew"]


@pytest.mark.parametrize(
    ("op", "args", "drawn"),
    [
        ("aten.dropout.default", [{"ref": "x"}, 0.1, True], True),
        ("aten.dropout.default", [{"ref": "x"}, 0.1, False], False),
        ("aten.dropout.default", [{"ref": "x"}, 0.0, True], False),
        ("aten.rand.default", [[3]], True),
        ("aten.lstm.input", [{"ref": "x"}, [], [], True, 2, 0.0, True], False),
        ("aten.lstm.input", [{"ref": "x"}, [], [], True, 2, 0.2, True], True),
        ("aten.relu.default", [{"ref": "x"}], False),
        ("getitem", [{"ref": "x"}, 0], False),
    ],
)
def test_which_operators_draw(op, args, drawn):
    assert draws(op, args, {}) is drawn


def test_all_of_pytorchs_drawing_operators_are_known():
    """PyTorch tags the operators that draw; in-place operators, those for other devices, and those used only within other operators do not occur in a
    captured graph."""
    elsewhere = ("mps", "miopen", "cudnn", "flash", "efficient", "nested", "fused_sdp", "triton", "mem_eff", "overrideable")
    for full in torch._C._dispatch_get_all_op_names():
        name, _, overload = full.removeprefix("aten::").partition(".")
        if not full.startswith("aten::") or name.endswith("_") or any(word in name for word in elsewhere) or not hasattr(torch.ops.aten, name):
            continue
        tags = getattr(getattr(torch.ops.aten, name), overload or "default").tags
        if torch.Tag.nondeterministic_seeded in tags and name != "rrelu":  # composite: captured as the operator that takes the noise
            args = [{"ref": "x"}, *([0.5] * 3), 0.5, 0.5, True] if name != "dropout" else [{"ref": "x"}, 0.5, True]
            assert draws(f"aten.{name}.{overload or 'default'}", args, {}), full
