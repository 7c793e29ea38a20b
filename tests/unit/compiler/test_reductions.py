"""Reductions with the operators around them, over every choice of axes; losses, pools, norms, running sums."""

import pytest
import torch

X3 = "torch.randn(6, 40, 72)"
CASES = {
    "mean of the last": ("return (x - x.mean(-1, keepdim=True)).abs()", X3),
    "sum of the middle": ("return (x * 2).sum(1) + 1", X3),
    "sum of two": ("return x.sum((1, 2)), x.mean((0, 2), keepdim=True) * 2", X3),
    "everything": ("return (x * x).mean(), x.sum()", "torch.randn(300, 200)"),
    "variances": ("return x.var(-1), x.std(-1, unbiased=False, keepdim=True), x.var((1, 2), correction=2)", X3),
    "largest": ("return x.amax(-1), (x + 1).amin(-1, keepdim=True), x.amax((1, 2))", X3),
    "softmax of the middle": ("return torch.softmax(x * 3, dim=1)", X3),
    "log softmax": ("return F.log_softmax(x * 4, dim=-1) * 2", X3),
    "logsumexp": ("return torch.logsumexp(x, -1), torch.logsumexp(x, (1, 2))", X3),
    "logsumexp of infinities": (
        'y = torch.logsumexp(x.masked_fill(x[:, :, :1] > 0, float("-inf")), -1)\nreturn y.isinf(), torch.logsumexp(1 / x.relu(), -1).isinf()',
        X3,
    ),
    "normalize": ("return F.normalize(x, dim=-1)", X3),
    "normalize a view of a row": ("v = F.normalize((x * y).view(24), dim=0)\nreturn v, x * v", "torch.randn(1, 24), torch.randn(1)"),
    "normalize a column": ("return F.normalize(torch.mv(x.t(), y), dim=0), F.softmax((x.t() * y).sum(1), 0)", "torch.randn(1, 24), torch.randn(1)"),
    "rows of one element": (
        "return F.softmax(x, 2) * 3, F.layer_norm(x, (1,)) + 1, F.normalize(x, dim=2), x.std(2, correction=0)",
        "torch.randn(4, 2, 1)",
    ),
    "norms": ("return x.norm(dim=-1), x.norm(p=1, dim=-1)", X3),
    "softmax with scale and mask": ('return torch.softmax((x / 3).masked_fill(x > 1.5, float("-inf")), -1)', X3),
    "two reductions of a row": ("return torch.softmax(x - x.mean(-1, keepdim=True), -1)", X3),
    "a row value used alone": ("m = x.mean(-1)\nreturn m.exp() * 2, x * m.unsqueeze(-1)", X3),
    "layer norm over two axes": ("return F.silu(F.layer_norm(x, (40, 72)))", X3),
    "rms norm": ("return F.rms_norm(x, (72,)) * 2", X3),
    "group norm": ("return F.relu(F.group_norm(x, 4))", "torch.randn(3, 16, 9, 10)"),
    "running sums": ("return torch.cumsum(x * x, -1) + 1", "torch.randn(37, 300)"),
    "running sums of a 3-d tensor": ("return torch.cumsum(x, 2) * 0.5", X3),
    "max pool": ("return F.max_pool2d(F.relu(x), 2) + 1", "torch.randn(3, 5, 12, 14)"),
    "max pool with a rest": ("return F.max_pool2d(x * 2, 3)", "torch.randn(3, 5, 13, 17)"),
    "average pool": ("return F.avg_pool2d(x.exp(), 2)", "torch.randn(3, 5, 12, 14)"),
    "overlapping pool": ("return F.relu(F.max_pool2d(x, 3, stride=2, padding=1))", "torch.randn(3, 5, 33, 37)"),
    "long rows": ("return torch.softmax(x, -1)", "torch.randn(3, 70000)"),
    "one element": ("return torch.softmax(x, 1), (x * 2).mean(), x.argmax()", "torch.randn(1, 1)"),
    "a batch of one": ("return F.nll_loss(F.log_softmax(x, 1), torch.zeros(1, dtype=torch.long))", "torch.randn(1, 5)"),
    "mse": ("return F.mse_loss(x, y)", "torch.randn(300, 200), torch.randn(300, 200)"),
    "smooth l1": ("return F.smooth_l1_loss(x, y), F.l1_loss(x, y)", "torch.randn(300, 200), torch.randn(300, 200)"),
    "kl": ('return F.kl_div(F.log_softmax(x, -1), F.softmax(y, -1), reduction="batchmean")', "torch.randn(300, 200), torch.randn(300, 200)"),
}


@pytest.mark.parametrize("name", CASES)
def test_reduction(compiled, task, name):
    body, inputs = CASES[name]
    found = compiled(task(body, inputs, arguments="x, y" if "), torch" in inputs else "x"))
    assert found.own
    found.check()


@pytest.mark.parametrize("extra", ["", ', reduction="sum"', ', reduction="none"', ", ignore_index=3"])
def test_cross_entropy(compiled, task, extra):
    found = compiled(task(f"return F.cross_entropy(x, y{extra})", "torch.randn(60, 70), torch.randint(0, 70, (60,))", arguments="x, y"))
    y = torch.randint(0, 70, (60,))
    y[::5] = 3 if "ignore" in extra else -100
    found.check([torch.randn(60, 70) * 10, y])


def test_cross_entropy_with_weights_is_left_to_pytorch(compiled, task):
    body = "return F.cross_entropy(x, y, weight=self.w, label_smoothing=0.1)"
    found = compiled(
        task(body, "torch.randn(60, 70), torch.randint(0, 70, (60,))", init='self.register_buffer("w", torch.rand(70))', arguments="x, y")
    )
    found.check()


@pytest.mark.parametrize("options", ["", ", affine=False", ", track_running_stats=False", ", momentum=0.3, eps=1e-3"])
def test_batch_norm_in_train_mode(compiled, task, options):
    found = compiled(task("return F.relu(self.bn(x)) + 1", "torch.randn(5, 8, 7, 9)", init=f"self.bn = nn.BatchNorm2d(8{options})"))
    assert any("batch norm" in title for title in found.own)
    found.check()


def test_batch_norm_of_a_matrix(compiled, task):
    found = compiled(task("return self.bn(x * 2)", "torch.randn(300, 40)", init="self.bn = nn.BatchNorm1d(40)"))
    found.check()


def test_nan_wins_a_maximum(compiled, task):
    found = compiled(task("return x.amax(-1), x.amin(-1), F.max_pool2d(x, 2), x.mean(-1)", "torch.randn(3, 5, 12, 14)"))
    x = torch.randn(3, 5, 12, 14)
    x[1, 2, 3, 4] = float("nan")
    found.check([x])


def test_embedding(compiled, task):
    body = "return self.e(t) * x + self.p.weight[: x.shape[1]]"
    init = "self.e = nn.Embedding(50, 32)\nself.p = nn.Embedding(64, 32)"
    found = compiled(task(body, "torch.rand(6, 20, 32), torch.randint(0, 50, (6, 20))", init=init, arguments="x, t"))
    assert "embedding" in found.own[0]
    found.check()


def test_matrix_products_stay_with_the_library(compiled, task):
    found = compiled(task("return torch.softmax(x @ x.transpose(-2, -1) / 8, -1) @ x", "torch.rand(4, 40, 32)"))
    assert [group.space for group in found.plan.groups] == ["library", "own kernel", "library"]
    assert "matmul is the library's" in found.text
    found.check()


@pytest.mark.parametrize("columns", [8, 300, 3000])
def test_rows_that_are_read_again_are_not_overwritten(compiled, task, columns):
    """The first pass stores tanh(x); a later pass that recomputes it from x must still find x."""
    found = compiled(task("h = torch.tanh(x @ x.t())\nreturn F.log_softmax(h, -1), h", f"torch.randn({columns}, 4)"))
    assert found.own
    found.check()
