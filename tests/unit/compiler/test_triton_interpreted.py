"""Printed Triton programs compared with PyTorch in fp64, run by Triton's interpreter: every style and family, odd sizes, strides, masks."""

import pytest

from compiler import DeviceFigures, Options, make_plan, print_program
from compiler.families.product import matmul
from compiler.planning.knobs import numbers
from tests.unit.compiler.triton_on_cpu import available, interpreted

pytestmark = pytest.mark.skipif(not available(), reason="scripts/triton installs Triton for tests; `make test` calls it")

SMALL = DeviceFigures.h200().model_copy(update={"units": 2})  # chosen so that small tensors fill the device


@pytest.fixture(scope="module", autouse=True)
def interpreter():
    with interpreted():
        yield


@pytest.fixture
def triton(compiled, task):
    def make(body: str, inputs: str, init: str = "pass", arguments: str = "x", figures: DeviceFigures = SMALL, **chosen: int):
        options = Options(knobs={name.replace("_", "-"): value for name, value in chosen.items()})
        found = compiled(task(body, inputs, init, arguments))
        found.plan = make_plan(found.capture, found.source, figures, language="triton")
        found.text = print_program(found.plan, found.source, options)
        assert "@triton.jit" in found.text and "SOURCE" not in found.text
        return found

    return make


POINTWISE = {
    "activations": ("return F.gelu(x) + F.mish(x) * F.silu(x) - F.elu(x).clamp(-1, 2) * x**3 + F.softplus(x)", "torch.randn(37, 29) * 3"),
    "functions": (
        "return torch.tan(x) + torch.log(x.abs() + 1) / x.sqrt() + torch.rsqrt(x) + x.round() + x.floor() + torch.pow(x, 1.5) + torch.sign(x - 1)",
        "torch.rand(40, 33) * 2 + 0.1",
    ),
    "more-functions": (
        "y = x.flip(0)\nreturn torch.logaddexp(x, y), x.copysign(y), torch.fmax(x, y), x.signbit(), torch.atanh(x.sin()) + torch.asinh(x), 2**y",
        "torch.randn(40, 33) * 3",
    ),
    "broadcast": ("return (x * self.w + self.b[:, None]).sigmoid(), x[:, :, 3:7] + 1", "torch.randn(5, 6, 11)"),
    "turned": ("return (x.transpose(1, 2) + self.b).contiguous(), x[1:, 2:5] * x[:-1, 1:4]", "torch.randn(5, 6, 11)"),
    "types": (
        "return torch.where(m & (i > 2), x, -x), (i * 2 + 1) & 7, ~m, i.float() / 3, torch.isnan(x) | torch.isinf(x), x > 0, i.clamp(1, 5)",
        "torch.tensor([float('nan'), float('inf'), -1.0, 0.0, 2.0] * 13), torch.randint(0, 9, (65,)), torch.rand(65) > 0.5",
    ),
    "nan-stays": ("return torch.relu(x), x.clamp(-1, 1), x.maximum(-x)", "torch.tensor([float('nan'), -2.0, 3.0] * 7)"),
    "triangle": ("return x.triu(1) + x.tril(-2)", "torch.randn(3, 21, 17)"),
    "table": ("return F.embedding(i, self.w)[:, :, :] * 2", "torch.randint(0, 6, (4, 7))"),
    "number": ("return x * 2 + 1", "torch.randn(())"),
}
WEIGHTS = "self.w = nn.Parameter(torch.randn(6, 11))\nself.b = nn.Parameter(torch.randn(6))"


@pytest.mark.parametrize("name", POINTWISE)
def test_pointwise(triton, name):
    body, inputs = POINTWISE[name]
    triton(body, inputs, WEIGHTS, {"types": "x, i, m", "table": "i"}.get(name, "x"), block=256).check()


ROWS = {
    "softmax": "return F.softmax(x, -1), F.log_softmax(x * 2, -1)",
    "norms": "return F.layer_norm(x, (19,), self.w, self.b), F.rms_norm(x, (19,))",
    "sums": "return x.mean(-1), x.sum((1, 2)), x.var(-1), torch.logsumexp(x, -1), x.norm(dim=-1)",
    "bounds": "return x.amax(-1), x.amin(1), x.max(dim=2)[0]",
    "columns": "return F.softmax(x, 1), x - x.mean(0)",
    "everything": "return x.sum(), (x - x.mean()).abs().mean()",
    "constant-along-a-row": "return (x[:, :, :1].expand(2, 3, 19) * 0 + 1).sum(-1) + x.amax(-1)",
    "cumulative": "return torch.cumsum(x, -1) + 1, torch.cumsum(x * self.w, 2)",
}


VARIANTS = (
    Options(),
    Options(knobs={"rows": 1}),
    Options(knobs={"rows": 4, "block": 2, "unroll": 2}),
    Options(knobs={"rows": 2, "block": 2, "row-blocks": 2}).with_strategy("parallel-split"),
    Options(knobs={"rows": 1, "block": 8, "row-blocks": 2}).with_strategy("parallel-split"),
)


def cases(names, slow: set[str]):
    return [pytest.param(name, marks=pytest.mark.slow if name in slow else ()) for name in names]


@pytest.mark.slow
@pytest.mark.parametrize("name", cases(ROWS, {"sums", "constant-along-a-row"}))
def test_rows_whole_block_by_block_and_shared(triton, name):
    """Covers one row per program, several rows per program, rows processed in blocks, and rows shared by programs."""
    init = "self.w = nn.Parameter(torch.rand(19))\nself.b = nn.Parameter(torch.rand(19))"
    found = triton(ROWS[name], "torch.randn(2, 3, 5)" if name in ("columns", "bounds") else "torch.randn(2, 3, 19)", init)
    assert len(found.plan.own) >= 1
    for options in VARIANTS:
        found.text = print_program(found.plan, found.source, options)
        found.check()


def test_nan_goes_through_a_maximum(triton):
    found = triton("return x.amax(-1), x.amin(-1), F.softmax(x, -1)", "torch.tensor([[1.0, float('nan'), 2.0], [3.0, 1.0, -float('inf')]])")
    found.check()


LOSSES = {
    "cross-entropy": ("return F.cross_entropy(x, i)", "torch.randn(70, 11), torch.randint(0, 11, (70,))", "x, i"),
    "huber": ("return F.smooth_l1_loss(x, y)", "torch.randn(70, 11), torch.randn(70, 11)", "x, y"),
    "divergence": ("return F.kl_div(torch.log(x), y, reduction='batchmean')", "torch.rand(70, 11) + 0.1, torch.rand(70, 11) + 0.1", "x, y"),
    "hinge": ("return torch.mean(torch.clamp(1 - x * y, min=0))", "torch.randn(300), torch.sign(torch.randn(300))", "x, y"),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses(triton, name):
    body, inputs, arguments = LOSSES[name]
    triton(body, inputs, arguments=arguments).check()


def test_batch_norm_and_group_norm_with_state(triton):
    init = "self.norm = nn.BatchNorm2d(6)\nself.groups = nn.GroupNorm(3, 6)"
    found = triton("return self.groups(x), torch.relu(self.norm(x))", "torch.randn(3, 6, 7, 5)", init)
    found.check()


def test_long_rows_shared_by_programs(triton):
    triton("return F.softmax(x, -1), x.sum(-1)", "torch.randn(2, 17000)", figures=DeviceFigures.h200()).check()


@pytest.fixture
def small_products(monkeypatch):
    monkeypatch.setattr(matmul, "LEAST_FLOPS", 1)


PRODUCTS = {
    "linear": (
        "F.linear(x, self.w, self.b)", "torch.randn(70, 52)", "self.w = nn.Parameter(torch.randn(90, 52))\nself.b = nn.Parameter(torch.randn(90))",
    ),
    "both-turned": ("x.t() @ self.w.t()", "torch.randn(40, 66)", "self.w = nn.Parameter(torch.randn(70, 40))"),
    "batches": ("torch.matmul(x.transpose(1, 2), self.w)", "torch.randn(2, 32, 40)", "self.w = nn.Parameter(torch.randn(32, 44))"),
    "heads": ("x.view(2, 20, 3, 24).transpose(1, 2) @ (x + 1).view(2, 20, 3, 24).permute(0, 2, 3, 1)", "torch.randn(2, 20, 72)", "pass"),
    "a-part": ("x[:, 4:40] @ self.w[1:37]", "torch.randn(64, 44)", "self.w = nn.Parameter(torch.randn(40, 64))"),
    "many-tiles": ("x @ self.w", "torch.randn(580, 16)", "self.w = nn.Parameter(torch.randn(16, 66))"),
}  # fmt: skip


@pytest.mark.parametrize("name", cases(PRODUCTS, {"a-part", "both-turned"}))
def test_products(triton, small_products, name):
    call, inputs, init = PRODUCTS[name]
    found = triton(f"return {call}", inputs, init)
    assert "matmul" in [group.family for group in found.plan.groups], [group.reason for group in found.plan.groups]
    found.check()


def test_a_tail_and_every_number_of_a_product(triton, small_products):
    body = "y = F.linear(x, self.w, self.b)\nreturn torch.relu(y * self.s + r) - self.c[:, None]"
    shapes = {"w": (66, 530), "b": (66,), "s": (66,), "c": (50,)}
    init = "\n".join(f"self.{name} = nn.Parameter(torch.randn{shape})" for name, shape in shapes.items())
    found = triton(body, "torch.randn(50, 530), torch.randn(50, 66)", init, "x, r")
    assert [(group.family, len(group.operators) > 3) for group in found.plan.groups] == [("matmul", True)]
    known = numbers(found.plan, found.source, Options())
    assert {number.name.rpartition(".")[2] for number in known} == {"tile", "warps", "stages", "promoted", "split"}
    for at in (0, 2):
        options = Options()
        for number in known:
            options = options.with_knob(number.name.rpartition(".")[2], number.values[at % len(number.values)], found.plan.own[0].id)
        found.text = print_program(found.plan, found.source, options)
        found.check()
