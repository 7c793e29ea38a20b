"""Precision policies, gradients and admission on the CPU."""

from __future__ import annotations

import pytest
from semantics_bench import Semantics, task
from verifier_bench import NOISY_PROGRAM, NOISY_TASK


@pytest.fixture(scope="module")
def semantics(tmp_path_factory, nursery):
    semantics = Semantics(tmp_path_factory.mktemp("semantics"), nursery=nursery)
    yield semantics
    semantics.close()


PRODUCT = task("return x @ self.w", "torch.randn(64, 512)", init="self.w = nn.Parameter(torch.randn(512, 64))")
CHECKED = "return x @ self.w if x.dtype == self.w.dtype == torch.{} else None"


@pytest.mark.parametrize(("policy", "dtype"), [("bf16", "bfloat16"), ("fp16", "float16"), ("tf32", "float32")])
def test_a_policy_casts_model_and_inputs_and_scales_the_bound(semantics, policy, dtype):
    outcome = semantics.changed(PRODUCT, "return x @ self.w", CHECKED.format(dtype), precision=policy)
    assert not outcome.wrong, outcome.wrong
    bound = outcome["task inputs 1"].bound
    assert {"bf16": 1e-3, "fp16": 1e-4, "tf32": 1e-6}[policy] < bound < {"bf16": 0.2, "fp16": 0.03, "tf32": 1e-4}[policy]


def test_operands_of_eleven_bits_are_tf32_and_of_eight_are_not(semantics):
    def rounded(bits: int) -> str:
        return f"cut(x, {bits}) @ cut(self.w, {bits})"

    cut = "\n\ndef cut(t, bits):\n    k = 2.0 ** (24 - bits) + 1\n    high = t * k\n    return high - (high - t)\n\n\nclass ModelNew("
    program = PRODUCT.replace("\n\n\nclass Model(", cut)
    right = semantics.judge(program.replace("x @ self.w", rounded(11)), PRODUCT, precision="tf32")
    assert not right.wrong, right.wrong
    assert semantics.judge(program.replace("x @ self.w", rounded(8)), PRODUCT, precision="tf32").wrong
    assert semantics.judge(program.replace("x @ self.w", rounded(11)), PRODUCT).wrong


def test_less_than_the_policy_is_wrong(semantics):
    cheat = semantics.changed(PRODUCT, "x @ self.w", "((x * 8).round() / 8) @ self.w", precision="bf16")
    assert cheat.wrong
    indices = task("return F.embedding(x, self.t).sum(1)", "torch.randint(0, 30, (64, 8))", init="self.t = nn.Parameter(torch.randn(30, 16))")
    assert not semantics.same(indices, precision="fp16").wrong  # integers stay integers


LAYER = task(
    "return torch.tanh(F.layer_norm(self.l(x), (32,))), (x * y).sum(-1)",
    "torch.randn(16, 64); torch.randn(16, 64)",
    init="self.l = nn.Linear(64, 32)\nself.idle = nn.Parameter(torch.ones(3))",
)


def test_gradients_of_inputs_and_parameters(semantics):
    right = semantics.same(LAYER, backward=True)
    assert not right.wrong, right.wrong
    assert all(trial.name.startswith("grad ") for trial in right.trials)
    assert right.stage.reference.backward == {"outputs": [0, 1], "sources": ["input 0", "input 1", "l.weight", "l.bias"]}
    for old, new, name in (
        ("self.l(x)", "F.linear(x, self.l.weight.detach(), self.l.bias)", "l.weight"),
        ("(x * y).sum(-1)", "(x * y.detach()).sum(-1)", "input 1"),
    ):
        outcome = semantics.changed(LAYER, old, new, backward=True)
        assert f"out['gradients']['{name}']" in outcome.wrong, outcome.wrong
    silent = semantics.changed(
        LAYER, "return torch.tanh(", "x, y = x.detach(), y.detach()\n        return torch.no_grad()(torch.tanh)(", backward=True
    )
    assert "carry no gradient" in silent.wrong


def test_an_own_backward(semantics):
    own = (
        "\n\nclass Square(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        ctx.save_for_backward(x)\n"
        "        return x * x\n\n    @staticmethod\n    def backward(ctx, g):\n        return FACTOR * ctx.saved_tensors[0] * g\n\n\nclass ModelNew("
    )
    square = task("return x * x", "torch.randn(16, 64)")
    program = square.replace("\n\n\nclass Model(", own).replace("return x * x\n\n\ndef get", "return Square.apply(x)\n\n\ndef get")
    assert not semantics.judge(program.replace("FACTOR", "2"), square, backward=True).wrong
    assert "gradients" in semantics.judge(program.replace("FACTOR", "1.99"), square, backward=True).wrong


def test_a_task_without_gradients_is_named(semantics):
    from verifier.judge.party_failure import PartyFailure

    with pytest.raises(PartyFailure, match="no output of the task carries a gradient"):
        semantics.same(task("return x.argmax(-1)"), backward=True)


@pytest.mark.parametrize(
    ("forward", "init", "guess"),
    [
        ("return x * 0", "", "zeros"),
        ("return torch.ones_like(x), x.argmax(-1) * 0", "", "ones"),
        ("return x + 1e-9", "", "input 0"),
        ("return x.mean(-1) + self.z", "self.z = nn.Parameter(torch.zeros(()))", "input 0"),
        ("return F.group_norm(x, 1).mean(-1)", "", "zeros|rounding noise"),
    ],
)
def test_trivial_tasks_are_flagged(semantics, forward, init, guess):
    admission = semantics.admit(task(forward, init=init))
    assert admission.flags == ["trivial"], admission
    assert any(part in admission.trivial_by for part in guess.split("|")), admission.trivial_by


def test_a_sound_task_is_not_flagged_and_says_what_it_needs(semantics):
    admission = semantics.admit(PRODUCT)
    assert admission.ok and admission.flags == [] and admission.trivial_by == ""
    assert admission.deterministic and admission.oracle == "cpu" and admission.memory_bytes > 0
    noisy = semantics.admit(task("return F.dropout(x, 0.5)"))
    assert noisy.ok and noisy.flags == ["stochastic"] and noisy.deterministic


@pytest.mark.slow
def test_running_averages_that_are_rounding_noise(semantics):
    found = semantics.judge(NOISY_PROGRAM, NOISY_TASK)
    assert not found.wrong, found.wrong
    call = "self.second(self.conv(folded(self.first, x)))"
    for skipped in ("first.running_mean", "second.running_mean", "second.running_var"):
        kept = f"kept = self.{skipped}.clone()\n        out = {call}\n        self.{skipped}.copy_(kept)\n        return out"
        assert skipped in semantics.judge(NOISY_PROGRAM.replace(f"return {call}", kept), NOISY_TASK).wrong


# Two rows are normalised to plus and minus one, so the second layer's running mean is noise whose size depends on the arithmetic.
PAIR = task(
    "return self.second(self.linear(self.first(x.mean(-1))))",
    "torch.rand(2, 32, 64) + 4",
    init="self.first = nn.BatchNorm1d(32)\nself.linear = nn.Linear(32, 48, bias=False)\nself.second = nn.BatchNorm1d(48)",
)
OWN_NORM = """class Norm(nn.BatchNorm1d):
    def forward(self, x):
        with torch.no_grad():
            x = x.to(KIND)
            mean = x.mean(0)
            centred = x - mean
            var = centred.square().mean(0)
            self.running_mean.copy_(self.running_mean.to(KIND) * 0.9 + mean * MOMENTUM)
            self.running_var.copy_(self.running_var.to(KIND) * 0.9 + var * 0.2)
            self.num_batches_tracked += 1
            factor = torch.rsqrt(var + self.eps) * self.weight
            return (SCALED).float()


class ModelNew("""
CENTRED, FOLDED_SHIFT = "centred * factor + self.bias", "x * factor + (self.bias - mean * factor)"


def own_norm(kind: str, scaled: str, momentum: str = "0.1") -> str:
    body = OWN_NORM.replace("KIND", kind).replace("SCALED", scaled).replace("MOMENTUM", momentum)
    return PAIR.replace("class Model(", body).replace("nn.BatchNorm1d(32)", "Norm(32)").replace("nn.BatchNorm1d(48)", "Norm(48)")


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "scaled"), [("torch.float64", CENTRED), ("torch.float32", FOLDED_SHIFT)])
def test_noise_of_an_earlier_call_is_no_value(semantics, kind, scaled):
    """Eager's noise from the first call is still part of its average after the second. A program that is more accurate than eager has less noise."""
    found = semantics.judge(own_norm(kind, scaled), PAIR)
    assert not found.wrong, found.wrong
    assert found["task inputs 2"].ok and found["random weights"].ok


@pytest.mark.slow
@pytest.mark.parametrize("update", ["", "self.second.running_mean.zero_()"])
def test_noisy_averages_hold_with_other_weights(semantics, update):
    program = own_norm("torch.float64", CENTRED)
    call = "self.second(self.linear(self.first(x.mean(-1))))"
    after = update or "self.second.running_mean.copy_(kept)"
    cheat = program.replace(f"return {call}", f"kept = self.second.running_mean.clone()\n        out = {call}\n        {after}\n        return out")
    assert "second.running_mean" in semantics.judge(cheat, PAIR).wrong


def test_another_momentum_is_wrong(semantics):
    assert "first.running_mean" in semantics.judge(own_norm("torch.float64", CENTRED, "0.11"), PAIR).wrong
