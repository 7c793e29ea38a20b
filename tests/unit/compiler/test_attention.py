"""Attention compared with PyTorch in fp64, run by the emulator: the operator and two products, masks, adjacent heads, and sizes that are not
multiples of a tile."""

import pytest

from compiler import DeviceFigures, Options, print_program
from compiler.families.attention import attention
from compiler.families.product import matmul
from tests.emulator import as_cpp

SMALL = DeviceFigures.h200().model_copy(update={"units": 2})


@pytest.fixture(autouse=True)
def small_heads_too(monkeypatch):
    monkeypatch.setattr(attention, "LEAST_FLOPS", 1)
    monkeypatch.setattr(matmul, "LEAST_FLOPS", 1 << 40)


HEADS = """B, T, C = x.shape
q, k, v = (self.qkv(x)).split(C, dim=2)
k = k.view(B, T, self.heads, C // self.heads).transpose(1, 2)
q = q.view(B, T, self.heads, C // self.heads).transpose(1, 2)
v = v.view(B, T, self.heads, C // self.heads).transpose(1, 2)
"""
GPT = (
    HEADS
    + """att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
att = WEIGHTS
y = att @ v
return y.transpose(1, 2).contiguous().view(B, T, C)"""
)
INIT = "self.heads = 2\nself.qkv = nn.Linear(SIZE, 3 * SIZE)\nself.register_buffer('bias', torch.tril(torch.ones(160, 160)).view(1, 1, 160, 160))"
CASES = {
    "operator": ("return F.scaled_dot_product_attention(x, x * 0.5, x + 1) * 2", "torch.randn(2, 2, 70, 72)", "pass"),
    "operator-causal": ("return F.scaled_dot_product_attention(x, y, y[..., :], is_causal=True, scale=0.3)",
                        "torch.randn(2, 130, 24), torch.randn(2, 150, 24)", "pass"),
    "gpt": (GPT.replace("WEIGHTS", "self.drop(F.softmax(att, dim=-1))"), "torch.randn(2, 140, 32)",
            INIT.replace("SIZE", "32") + "\nself.drop = nn.Dropout(0.0)"),
    "relu": (GPT.replace("WEIGHTS", "F.relu(att)"), "torch.randn(2, 128, 32)", INIT.replace("SIZE", "32")),
    "one-head": ("s = torch.softmax(x @ y.t() + self.b, -1)\nreturn torch.tanh(s @ y)", "torch.randn(65, 32), torch.randn(96, 32)",
                 "self.b = nn.Parameter(torch.randn(96))"),
}  # fmt: skip
QUICK = ("gpt",)


def made(task, name: str) -> str:
    body, inputs, init = CASES[name]
    arguments = "x, y" if "), torch" in inputs else "x"
    return "import math\n" + task(body, inputs, init, arguments)


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in CASES])
def test_attention(compiled, task, name):
    found = compiled(made(task, name), figures=SMALL)
    assert "attention" in [group.family for group in found.plan.groups], [(group.title, group.reason) for group in found.plan.groups]
    group = next(group for group in found.plan.groups if group.family == "attention")
    for warps in (4, 8) if name not in QUICK else (4,):
        found.text = as_cpp(print_program(found.plan, found.source, Options().with_knob("warps", warps, group.id)))
        found.text = found.text.replace('("cpp", SOURCE)', '("cpp", SOURCE, ("-O1",))')
        found.check()


@pytest.mark.parametrize(("keys", "shares"), [(600, 2), pytest.param(1024, 3, marks=pytest.mark.slow)])
def test_few_queries_share_the_keys(compiled, task, keys, shares):
    """The last shares contain only masked keys."""
    masked = f"torch.arange({keys}, device=q.device) > p[:, None, None, None]"
    body = f"s = (q @ k.transpose(-1, -2) * 0.2).masked_fill({masked}, float('-inf'))\nreturn torch.softmax(s, -1) @ v * 2"
    inputs = f"torch.randn(2, 2, 3, 32), *torch.randn(2, 2, 2, {keys}, 32), torch.tensor([{keys - 1}, 70])"
    found = compiled(task(body, inputs, arguments="q, k, v, p"), figures=SMALL)
    assert f"in {shares} shares" in found.text and "_finish<<<" in found.text
    found.text = as_cpp(found.text).replace('("cpp", SOURCE)', '("cpp", SOURCE, ("-O1",))')
    found.check()


def test_what_is_declined_and_why(compiled, task):
    for body, inputs, reason in (
        ("return F.scaled_dot_product_attention(x, x, x)", "torch.randn(2, 64, 136)", "heads of 136"),
        ("return F.scaled_dot_product_attention(x, x, x, dropout_p=0.1)", "torch.randn(2, 64, 16)", "dropout"),
        ("return F.scaled_dot_product_attention(x, x, x)", "torch.randn(2, 8, 16)", "short attention"),
    ):
        found = compiled(task(body, inputs), figures=SMALL)
        assert any(reason in group.reason for group in found.plan.groups), [group.reason for group in found.plan.groups]
    chain = compiled(task("s = x @ x.transpose(1, 2)\nreturn torch.softmax(s, -1) @ x, s", "torch.randn(2, 64, 16)"), figures=SMALL)
    assert "attention" not in [group.family for group in chain.plan.groups]  # the scores are a result
