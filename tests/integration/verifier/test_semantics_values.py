"""The requirements on a program's outputs, inputs, memory and state, for everything that a task may contain."""

from __future__ import annotations

import pytest
from semantics_bench import Semantics, task

from verifier.judge import memory


@pytest.fixture(scope="module")
def semantics(tmp_path_factory, nursery):
    semantics = Semantics(tmp_path_factory.mktemp("semantics"), nursery=nursery)
    yield semantics
    semantics.close()


MANY = task(
    """rows = F.embedding(x, self.table)
wide = y.to(torch.float64).sin().sum(-1)
return {
    "rows": rows, "bits": (y > 0.5, ~(x > 3)), "spectrum": torch.fft.fft(y), "wide": wide, "mean": y.mean(), "none": y[:0],
    "small": (x % 100).to(torch.int8), "best": y.argmax(-1), "half": y.half(), "square": [z * z.conj()], "last": z.real.contiguous(),
}""",
    "torch.randint(0, 50, (16, 8)); torch.rand(16, 64); torch.randn(4, 6, dtype=torch.complex64)",
    init="self.table = nn.Parameter(torch.randn(50, 16))",
)


def test_every_kind_of_output_passes_and_is_looked_at(semantics):
    outcome = semantics.same(MANY)
    assert not outcome.wrong, outcome.wrong
    assert {"negative", "heavy-tailed", "tiny", "large", "random weights", "one element of input 2 changed"} <= {
        trial.name for trial in outcome.trials
    }
    for old, new, name in (
        ('"small": (x % 100).to(torch.int8)', '"small": (x % 100).to(torch.int16)', "small"),
        ("torch.fft.fft(y)", "torch.fft.fft(y).conj().resolve_conj()", "spectrum"),
        ('"none": y[:0]', '"none": y[:1]', "none"),
        ("y.to(torch.float64).sin().sum(-1)", "y.sin().sum(-1).double()", "wide"),
    ):
        outcome = semantics.changed(MANY, old, new)
        assert name in outcome.wrong, (name, outcome.wrong)


LAYOUT = task(
    "return F.conv2d(x, self.w) + y.t().sum(), y",
    "torch.rand(2, 8, 10, 10).to(memory_format=torch.channels_last); torch.rand(6, 4).t()",
    init="self.w = nn.Parameter(torch.randn(8, 8, 3, 3))",
)


def test_layouts_reach_the_program_and_outputs_may_have_others(semantics):
    seen = semantics.changed(
        LAYOUT,
        "return F",
        "assert x.is_contiguous(memory_format=torch.channels_last) and y.stride() == (1, 4), (x.stride(), y.stride())\n        return F",
    )
    assert not seen.wrong, seen.wrong
    other = semantics.changed(LAYOUT, "return F.conv2d(x, self.w) + y.t().sum(), y", "return (F.conv2d(x, self.w) + y.sum()).contiguous(), y")
    assert not other.wrong, other.wrong


def test_outputs_are_the_programs_own_memory(semantics):
    plain = task("return x * torch.where(x > -9, 1.0, 2.0)")
    echo = semantics.changed(plain, "x * torch.where(x > -9, 1.0, 2.0)", "x")
    assert "shares its memory with input 0" in echo.wrong, echo.wrong
    weight = task("return self.w + 0 * x.sum()", init="self.w = nn.Parameter(torch.randn(8, 8))")
    assert "shares its memory with w" in semantics.changed(weight, "self.w + 0 * x.sum()", "self.w").wrong
    kept = semantics.changed(
        plain, "return x *", "if not hasattr(self, 'y'):\n            self.y = torch.empty_like(x)\n        return torch.mul(x, 1.0, out=self.y) *"
    )
    assert not kept.wrong  # a private buffer that is not returned
    handed = semantics.changed(
        plain, "return x *", "if not hasattr(self, 'y'):\n            self.y = torch.empty_like(x)\n        return self.y.copy_(x)\n        x *"
    )
    assert "called again" in handed.wrong


def test_outputs_of_gigabytes_are_known_by_their_fingerprints(semantics, monkeypatch):
    monkeypatch.setattr(memory, "LARGE", 0)
    plain = task("return x * 2.0, x.sum(-1)")
    assert not semantics.same(plain).wrong
    buffer = "if not hasattr(self, 'y'):\n            self.y = torch.empty_like(x)\n        return torch.mul(x, 2.0, out=self.y), x.sum(-1)"
    assert "called again" in semantics.changed(plain, "return x * 2.0, x.sum(-1)", buffer).wrong


def test_a_memo_is_found_wherever_it_looks(semantics):
    plain = task("return torch.softmax(x, -1)", "torch.rand(64, 256)")
    memo = (
        "self.m = getattr(self, 'm', {{}})\n        k = {key}\n"
        "        if k not in self.m:\n            self.m[k] = torch.softmax(x, -1)\n        return self.m[k].clone()"
    )
    for key in ("x.data_ptr()", "(x.flatten()[:256].sum().item())", "x.shape"):
        outcome = semantics.changed(plain, "return torch.softmax(x, -1)", memo.format(key=key))
        assert outcome.wrong, key
    whole = semantics.changed(plain, "return torch.softmax(x, -1)", memo.format(key="x.numpy().tobytes()"))
    assert not whole.wrong  # the key covers the whole input, so nothing is saved: no two timed calls are alike


def test_the_task_may_change_its_inputs_and_its_state(semantics):
    moving = task("x.mul_(2)\nreturn self.bn(x), x + 1", "torch.rand(16, 8)", init="self.bn = nn.BatchNorm1d(8)")
    assert not semantics.same(moving).wrong
    frozen = semantics.changed(moving, "self.bn(x)", "F.batch_norm(x, None, None, self.bn.weight, self.bn.bias, True)")
    assert "bn.running" in frozen.wrong
    evaluated = semantics.changed(moving, "self.bn(x)", "F.batch_norm(x, None, None, self.bn.weight, self.bn.bias, True)", mode="eval")
    assert evaluated.wrong  # in eval mode, normalisation uses the running statistics


def test_weights_that_are_taken_for_granted(semantics):
    layer = task("return self.l(x)", init="self.l = nn.Linear(256, 64)\nnn.init.zeros_(self.l.bias)")
    outcome = semantics.changed(layer, "self.l(x)", "x @ self.l.weight.T")
    assert "takes the values for granted" in outcome.wrong and "l.bias" in outcome.wrong
    derived = (
        layer.replace("class Model(", "class ModelNew(")
        .replace("nn.init.zeros_(self.l.bias)", "nn.init.zeros_(self.l.bias)\n        self.t = self.l.weight.detach().t().contiguous()")
        .replace("self.l(x)", "x @ self.t + self.l.bias")
    )
    outcome = semantics.judge(derived, layer)
    assert not outcome.wrong and outcome.verdict.weights == "seeded"


@pytest.mark.slow
def test_random_numbers_are_the_same_in_fp64(semantics):
    drop = task(
        "return F.dropout(x @ self.w, 0.3) + 0.1 * torch.randn_like(x[:, :8])", "torch.rand(64, 32)", init="self.w = nn.Parameter(torch.randn(32, 8))"
    )
    outcome = semantics.same(drop)
    assert not outcome.wrong and outcome.flags == ["stochastic"]
    assert outcome["task inputs 1"].bound < 1e-5  # judged against fp64, not against eager within a wide bound
    assert semantics.changed(drop, "x @ self.w", "(x.bfloat16() @ self.w.bfloat16()).float()").wrong


@pytest.mark.slow
def test_decisions_that_rounding_makes(semantics):
    # Half of the pairs are equal except for rounding, so which index PyTorch returns is arbitrary.
    task_source = task("s = (x * y).sum(-1)\nreturn (s.view(2, -1)).argmax(0)", "torch.rand(4096, 64); torch.rand(4096, 64)").replace(
        "return [torch.rand(4096, 64), torch.rand(4096, 64)]",
        "a, b = torch.rand(2048, 64), torch.rand(2048, 64)\n    return [torch.cat([a, a.flip(-1)]), torch.cat([b, b.flip(-1)])]",
    )
    assert not semantics.same(task_source).wrong
    assert semantics.changed(task_source, "argmax(0)", "argmin(0)").wrong
