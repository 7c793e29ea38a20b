"""Attention in bf16 and fp16 as one kernel, compared with PyTorch and run by the emulator: scalings, masks, lengths that are not multiples of a tile,
every width, every shape."""

import pytest

from compiler import DeviceFigures, Options, print_program
from compiler.families.attention import attention
from compiler.families.product import half_product
from compiler.planning.knobs import numbers
from tests.emulator import as_cpp
from tests.unit.compiler.test_attention import GPT, INIT

SMALL = DeviceFigures.h200().model_copy(update={"units": 2})


@pytest.fixture(autouse=True)
def small_heads_too(monkeypatch):
    monkeypatch.setattr(attention, "LEAST_FLOPS", 1)
    monkeypatch.setattr(half_product, "worthwhile", lambda *_: True)


@pytest.fixture
def emulated(compiled):
    """Compiles a task's attention as one kernel, with its products, the softmax and everything in between."""

    def run(source: str, precision: str = "bf16", **knobs: int):
        found = compiled(source, figures=SMALL, precision=precision)
        group = next((group for group in found.plan.groups if group.family == "attention"), None)
        assert group is not None, [(group.title, group.reason) for group in found.plan.groups]
        found.text = as_cpp(print_program(found.plan, source, Options(knobs=knobs)))
        return found, group

    return run


def heads(shape: str, change: str = "") -> tuple[str, str, str]:
    """Returns a softmax of the products of an input with itself, with `change` applied in between."""
    return f"s = x @ x.transpose(-2, -1) * 0.3\n{change}\nreturn torch.softmax(s, -1) @ (x + 1)", f"torch.randn({shape})", "pass"


MASK = "self.m = nn.Parameter(torch.randn(80, 80))"
CASES = {
    "plain": ("return torch.relu(torch.softmax(x @ y.mT, -1) @ y)", "torch.randn(2, 64, 32), torch.randn(2, 128, 32)", "pass"),
    "scaled": heads("2, 64, 64"),
    "divided": ("return torch.softmax(x @ x.mT / 7.5, -1) @ x", "torch.randn(3, 70, 16)", "pass"),
    "negative": ("return torch.softmax(x @ x.mT * -0.2, -1) @ x", "torch.randn(96, 32)", "pass"),
    "odd lengths": ("return torch.softmax(x @ y.mT * 0.3, -1) @ y", "torch.randn(2, 33, 48), torch.randn(2, 101, 48)", "pass"),
    "wide": heads("1, 72, 128"),
    "bias": (*heads("2, 80, 32", "s = s + self.m")[:2], MASK),
    "causal": (GPT.replace("WEIGHTS", "F.softmax(att, dim=-1)"), "torch.randn(2, 140, 64)", INIT.replace("SIZE", "64")),
    "relu": (GPT.replace("WEIGHTS", "F.relu(att)"), "torch.randn(2, 90, 64)", INIT.replace("SIZE", "64")),
    "dropped rows": (*heads("2, 80, 32", "s = torch.where(self.m > -1.5, s, float('-inf'))")[:2], MASK),
    "masked rows": (*heads("2, 80, 32", "s = torch.where(self.m[:, :1] > -1, s, float('-inf'))")[:2], MASK),
    "hidden rows": (*heads("2, 80, 32", "s = s + (self.m[:, :1] < -1).to(s.dtype) * -3e38")[:2], MASK),
    "late keys": (*heads("2, 160, 32", "s = s.masked_fill(self.early, float('-inf'))")[:2],
                  "self.register_buffer('early', torch.ones(160, 160).tril(4) > 0)"),
    "large": ("return torch.softmax(x @ y.mT * 9, -1) @ y", "torch.randn(2, 64, 32), torch.randn(2, 640, 32)", "pass"),
}  # fmt: skip
QUICK = {("odd lengths", "bf16"), ("causal", "fp16"), ("late keys", "bf16")}
EVERY = [(name, precision) for name in CASES for precision in ("bf16", "fp16") if (name, precision) != ("hidden rows", "fp16")]


def made(task, name: str) -> str:
    body, inputs, init = CASES[name]
    return "import math\n" + task(body, inputs, init, "x, y" if "), torch" in inputs else "x")


@pytest.mark.parametrize("name, precision", [pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow) for case in EVERY])
def test_attention(emulated, task, name, precision):
    found, group = emulated(made(task, name), precision)
    assert len(group.operators) >= 3
    found.check()


@pytest.mark.slow
@pytest.mark.parametrize("width", [16, 32, 48, 64, 96, 128])
def test_every_number(emulated, task, width):
    """Covers all shapes of a kernel, with more than one tile of keys and a partial last tile."""
    source = task(*heads(f"2, 140, {width}"))
    found, group = emulated(source)
    known = numbers(found.plan, source, Options())
    knobs = {number.name.rpartition(".")[2]: number.values for number in known if group.id in number.groups}
    assert set(knobs) == {"warps", "tile", *(["strip"] if width <= 64 else [])}  # results for 32 wide rows leave no free registers
    for at in range(max(map(len, knobs.values()))):
        emulated(source, **{knob: values[at % len(values)] for knob, values in knobs.items()})[0].check()


def test_multihead_attention_is_one_kernel(emulated, task):
    """Covers the attention in KernelBench's VisionAttention: the scores of all heads are never stored in memory."""
    init = "self.attn = nn.MultiheadAttention(64, 2)\nself.norm = nn.LayerNorm(64)"
    body = "x = x.flatten(2).permute(2, 0, 1)\ny, _ = self.attn(x, x, x)\nreturn self.norm(y + x)"
    found, group = emulated(task(body, "torch.randn(2, 64, 9, 8)", init))
    assert group.operators == ["bmm", "softmax", "bmm_1"]
    assert "HalfRows<bf16, 32, 64" in found.text
    found.check()


def test_scores_are_scaled_within_the_exponent(emulated, task):
    whole = emulated(task(*heads("2, 128, 64")))[0].text
    assert "OF_SCALED> rows" in whole and "rows.change(" not in whole
    masked = emulated(made(task, "bias"))[0].text
    assert "OF_CHANGED> rows" in masked and "*(unsigned*)m_i_pair = *(const unsigned*)" in masked


def test_what_is_declined(compiled, task):
    products = "return torch.softmax(x @ x.mT, -1) @ x"
    for width in (24, 144):
        found = compiled(task(products, f"torch.randn(2, 64, {width})"), figures=SMALL, precision="bf16")
        assert [group.family for group in found.plan.groups] == ["half-product", "", "half-product"]
    operator = compiled(task("return F.scaled_dot_product_attention(x, x, x)", "torch.randn(2, 64, 32)"), figures=SMALL, precision="bf16")
    assert ["as one operator" in group.reason for group in operator.plan.groups] == [True]
    mixed = "s = torch.softmax(x @ x.mT, -1, dtype=torch.float32)\nreturn s @ x.float()"
    found = compiled(task(mixed, "torch.randn(2, 64, 32)"), figures=SMALL, precision="bf16")
    assert "attention" not in [group.family for group in found.plan.groups]
