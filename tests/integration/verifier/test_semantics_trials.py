"""The trials of a program: they use different weights regardless of their names, cover every input, and are all run, however slow the program is."""

from __future__ import annotations

import dataclasses

import pytest
from semantics_bench import LIMITS, Semantics, task


@pytest.fixture(scope="module")
def semantics(tmp_path_factory, nursery):
    semantics = Semantics(tmp_path_factory.mktemp("semantics"), nursery=nursery)
    yield semantics
    semantics.close()


@pytest.fixture(scope="module")
def hurried(tmp_path_factory, nursery):
    """Allows trials so little time that a task taking a tenth of a second per call counts as slow."""
    semantics = Semantics(tmp_path_factory.mktemp("hurried"), limits=dataclasses.replace(LIMITS, correctness=0.4), nursery=nursery)
    yield semantics
    semantics.close()


GATED = task("return torch.tanh(x) + self.gate * self.l(x)", init="self.l = nn.Linear(256, 256)\nself.gate = nn.Parameter(torch.zeros(256))")
QKV = task("return torch.sigmoid(self.q(x)) * self.k(x)", init="self.q = nn.Linear(256, 256)\nself.k = nn.Linear(256, 256)")


def renamed(source: str, *names: str) -> str:
    for name in names:
        source = source.replace(f"self.{name}", f"self.{name}_own")
    return source.replace("class Model(", "class ModelNew(")


def test_other_names_are_matched_by_equal_values(semantics):
    outcome = semantics.judge(renamed(GATED, "gate", "l"), GATED)
    assert not outcome.wrong and outcome.verdict.weights == "matched"
    assert outcome["random weights"].ok
    gone = renamed(GATED, "gate", "l").replace("torch.tanh(x) + self.gate_own * self.l_own(x)", "torch.tanh(x) + 0 * self.gate_own * self.l_own(x)")
    assert "takes the values for granted" in semantics.judge(gone, GATED).wrong


def test_a_refused_state_dict_does_not_turn_the_trials_off(semantics):
    """Covers omitted weights, fused weights with another shape, and a constructor that hides its weights."""
    dropped = task("return torch.tanh(x) + 0 * self.shut", init="self.shut = nn.Parameter(torch.zeros(256))").replace(
        "class Model(", "class ModelNew("
    )
    hidden = (
        renamed(GATED, "gate", "l")
        .replace("self.gate_own * self.l_own(x)", "0 * x")
        .replace("self.l_own = nn.Linear(256, 256)", "self.l_own = nn.Linear(256, 255)")
    )
    for program in (dropped, hidden):
        outcome = semantics.judge(program, GATED)
        assert outcome.wrong.startswith("weights differ: use the task's names or a load hook"), outcome.wrong
        assert outcome.verdict.weights == "seeded"


def test_weights_fused_in_a_constructor_pass_and_say_so(semantics):
    start = "self.q = nn.Linear(256, 256)\n        self.k = nn.Linear(256, 256)"
    fused = "q, k = nn.Linear(256, 256), nn.Linear(256, 256)\n        self.w = nn.Parameter(torch.cat([q.weight, k.weight]).detach())\n"
    fused += "        self.b = nn.Parameter(torch.cat([q.bias, k.bias]).detach())"
    program = QKV.replace("class Model(", "class ModelNew(").replace(start, fused)
    program = program.replace(
        "return torch.sigmoid(self.q(x)) * self.k(x)", "q, k = F.linear(x, self.w, self.b).chunk(2, -1)\n        return q.sigmoid() * k"
    )
    outcome = semantics.judge(program, QKV)
    assert not outcome.wrong and outcome.verdict.weights == "seeded"
    assert any("use the task's names or a load hook" in finding.message for finding in outcome.verdict.findings)
    assert sum(trial.name.startswith("random weights, constructed") for trial in outcome.trials) == 3


def test_wrong_on_purpose_with_other_weights(semantics):
    """The program either reads a gate once, while it is still closed, or has a table that is the identity until it is loaded, or has a branch for
    other weights."""
    once = GATED.replace("self.gate = nn.Parameter(torch.zeros(256))", "self.gate = nn.Parameter(torch.zeros(256))\n        self.shut = True")
    program = once.replace("class Model(", "class ModelNew(").replace("return torch.tanh(x) + self.gate * self.l(x)", "return torch.tanh(x)")
    assert "takes the values for granted" in semantics.judge(program, GATED).wrong
    turned = task("return torch.tanh(x @ self.turn)", init="self.register_buffer('turn', torch.eye(256))")
    assert "takes the values for granted" in semantics.changed(turned, "x @ self.turn", "x").wrong
    own = "self.w = self.l.weight.detach().clone()"
    switched = QKV.replace("self.k = nn.Linear(256, 256)", "self.k = nn.Linear(256, 256)\n        " + own.replace("self.l", "self.k"))
    program = switched.replace("class Model(", "class ModelNew(").replace("* self.k(x)", "* (self.k(x) if torch.equal(self.w, self.k.weight) else x)")
    outcome = semantics.judge(program, QKV)
    assert not outcome.wrong and outcome.verdict.weights == "seeded"  # it cannot be loaded, as the report states
    assert any(finding.severity == "downgrade" and finding.rule == "weights" for finding in outcome.verdict.findings)


def test_state_and_gradients_are_compared_under_other_names(semantics):
    moving = task("return self.bn(x) * self.gain", "torch.rand(16, 8)", init="self.bn = nn.BatchNorm1d(8)\nself.gain = nn.Parameter(torch.ones(8))")
    assert not semantics.judge(renamed(moving, "bn", "gain"), moving).wrong
    still = renamed(moving, "bn", "gain").replace("self.bn_own(x)", "F.batch_norm(x, None, None, self.bn_own.weight, self.bn_own.bias, True)")
    outcome = semantics.judge(still, moving)
    assert "bn.running" in outcome.wrong
    parts = outcome.trials[-1].wrong
    assert [part.name for part in parts] == ["bn.running_mean", "bn.running_var", "bn.num_batches_tracked"] and outcome.trials[-1].compared == 4
    assert (parts[0].wrong, parts[0].elements, parts[0].where, parts[2].first) == (8, 8, "every element", [])
    outcome = semantics.judge(renamed(QKV, "q", "k"), QKV, backward=True)
    assert not outcome.wrong and outcome.verdict.weights == "matched"
    stopped = renamed(QKV, "q", "k").replace("* self.k_own(x)", "* F.linear(x, self.k_own.weight.detach() + 0 * self.k_own.weight, self.k_own.bias)")
    assert semantics.judge(stopped, QKV, backward=True).wrong


MASKED = task("return torch.softmax(x.masked_fill(~y, float('-inf')), -1)", "torch.rand(64, 256); torch.ones(64, 256, dtype=torch.bool)")
GATHERED = task("return torch.relu(x.index_select(0, y))", "torch.randn(64, 256); torch.arange(64)")
ROOTS = task("return torch.sqrt(x) + torch.lgamma(x + 1.0)")
LOGIT = task("return torch.log(x) - torch.log1p(-x)", "torch.rand(64, 256) * 0.5 + 0.25")


def test_no_input_is_left_as_the_generator_makes_it(semantics):
    for honest in (MASKED, GATHERED, ROOTS, LOGIT):
        outcome = semantics.same(honest)
        assert not outcome.wrong and "narrow" not in outcome.flags, (outcome.wrong, outcome.flags)
    assert semantics.changed(MASKED, "x.masked_fill(~y, float('-inf'))", "x").wrong
    assert semantics.changed(GATHERED, "x.index_select(0, y)", "x").wrong
    assert "signs kept" in semantics.changed(ROOTS, "torch.lgamma(x + 1.0)", "torch.lgamma(x.clamp(max=1.0) + 1.0)").wrong
    assert "range kept" in {part for trial in semantics.same(LOGIT).trials for part in trial.name.strip(")").split(" (")}


def test_a_task_that_bears_nothing_else_is_flagged(semantics):
    fixed = task("assert bool((x == 0.5).all())\nreturn x + torch.arange(256.0)", "torch.full((64, 256), 0.5)")
    outcome = semantics.same(fixed)
    assert not outcome.wrong and "narrow" in outcome.flags
    assert any(entry.startswith("negative: ") for entry in outcome.verdict.untried)


@pytest.mark.slow
def test_a_slow_program_leaves_no_trial_out(hurried):
    slow = task("return torch.relu(x) * 0.5", extra="\n\ndef get_input_variants():\n    return [[torch.rand(n, 10)] for n in range(1, 9)]\n")
    outcome = hurried.changed(slow, "return torch.relu(x)", "import time; time.sleep(0.12)\n        return x")
    assert outcome.wrong.startswith(("heavy-tailed", "negative")), outcome.wrong
    outcome = hurried.changed(slow, "return torch.relu(x)", "import time; time.sleep(0.12)\n        return torch.relu(x)")
    assert not outcome.wrong and not outcome.verdict.untried
    with pytest.raises(Exception, match="too slow to try them all"):
        hurried.changed(slow, "return torch.relu(x)", "import time; time.sleep(1.5)\n        return torch.relu(x)")


def test_what_a_slow_task_leaves_out_is_listed(hurried):
    slow = task("import time; time.sleep(0.1)\nreturn torch.relu(x) @ self.w", init="self.w = nn.Parameter(torch.randn(256, 8))")
    outcome = hurried.same(slow, full=True)
    assert not outcome.wrong and "task inputs 5: the task is slow" in outcome.verdict.untried
    assert {"heavy-tailed", "negative", "random weights", "one element changed"} <= {trial.name for trial in outcome.trials}


PLAIN = task("return torch.relu(x) * 1.5", "torch.randn(32, 64)")
RING = "if not hasattr(self, 'ring'):\n            self.ring, self.turn = [torch.zeros_like(x) for _ in range({count})], 0\n        "
RING += "self.turn = (self.turn + 1) % {count}\n        return torch.mul(torch.relu(x), 1.5, out=self.ring[self.turn]){view}"


@pytest.mark.parametrize("count", [2, 5, 15])
def test_a_ring_of_output_buffers_is_found_and_told_what_to_do(semantics, count):
    for view in ("", ".view(-1).view(32, 64)"):
        outcome = semantics.changed(PLAIN, "return torch.relu(x) * 1.5", RING.format(count=count, view=view))
        assert "`clone()`" in outcome.wrong, outcome.wrong
    assert not semantics.changed(PLAIN, "return torch.relu(x) * 1.5", RING.format(count=count, view=".clone()")).wrong


def test_memory_that_is_not_seen_as_one_is_read_again(semantics):
    """Each call wraps a buffer's memory in a new tensor, so only the contents reveal that it is the same memory."""
    wrapped = (
        "import ctypes\n        if not hasattr(self, 'room'):\n            self.room, self.turn = [(ctypes.c_float * 2048)() for _ in range(3)], 0\n"
    )
    wrapped += "        self.turn = (self.turn + 1) % 3\n        y = torch.frombuffer(self.room[self.turn], dtype=torch.float32).view(32, 64)\n"
    wrapped += "        return y.copy_(torch.relu(x) * 1.5)"
    assert "`clone()`" in semantics.changed(PLAIN, "return torch.relu(x) * 1.5", wrapped).wrong


TWO = task("h = torch.relu(x)\nreturn h * 1.5, h + 1", "torch.randn(32, 64)")


def test_outputs_share_no_element_with_each_other_or_with_themselves(semantics):
    columns = semantics.changed(TWO, "return h * 1.5, h + 1", "y = torch.cat([h * 1.5, h + 1], -1)\n        return y[:, :64], y[:, 64:]")
    assert not columns.wrong, columns.wrong  # views of one allocation that share no elements
    copied = task("h = torch.relu(x) * 1.5\nreturn h, h.clone()", "torch.randn(32, 64)")
    assert "shares its memory with out[" in semantics.changed(copied, "h.clone()", "h").wrong
    assert not semantics.same(task("h = torch.relu(x) * 1.5\nreturn h, h.t()", "torch.randn(32, 64)")).wrong
    repeated = task("return (x * 0.5).unsqueeze(1).repeat(1, 4, 1)", "torch.randn(32, 64)")
    assert "zero strides" in semantics.changed(repeated, "repeat(1, 4, 1)", "expand(-1, 4, -1)").wrong
    assert not semantics.same(repeated.replace("repeat(1, 4, 1)", "expand(-1, 4, -1)")).wrong


def test_outputs_are_laid_out_as_the_tasks_are(semantics):
    first = task("return {'y': (x * 0.5).permute(0, 2, 1).contiguous(), 's': x.sum()}", "torch.randn(8, 16, 32)")
    outcome = semantics.changed(first, ".contiguous()", "")
    assert not outcome.wrong and [finding.rule for finding in outcome.verdict.findings] == ["layout"]
    assert not semantics.same(first).verdict.findings


def test_other_random_numbers_are_named(semantics):
    drop = task("return F.dropout(x, 0.25, training=True)")
    own = "return x * (torch.rand(x.shape, generator=torch.Generator().manual_seed(int(torch.randint(99, ())))) > 0.25) / 0.75"
    assert "torch's" in semantics.changed(drop, "return F.dropout(x, 0.25, training=True)", own).wrong


def test_nan_is_handed_on_or_swallowed_by_a_bound(semantics):
    """A number in place of NaN is wrong. A clamp or maximum with C's semantics is reported as a note. NaN may propagate further than in PyTorch."""
    top = task("return torch.clamp(x.amax(-1), 0.0, 6.0)", "torch.randn(64, 128)")
    compared = semantics.changed(top, "x.amax(-1)", "x.nan_to_num(-1e9).amax(-1)")
    assert not compared.wrong and [finding.rule for finding in compared.verdict.findings] == ["nan"]
    assert "NaN in the inputs is lost" in semantics.changed(top, "x.amax(-1)", "torch.where(x.isnan(), 5.0, x).amax(-1)").wrong
    assert not semantics.same(top).verdict.findings
    middle = task("return torch.clamp(x.mean(-1), -6.0, 6.0)", "torch.randn(64, 128)")
    assert "NaN in the inputs is lost" in semantics.changed(middle, "x.mean(-1)", "x.nan_to_num(0.0).mean(-1)").wrong
    layers = task("return torch.relu(x @ self.a) @ self.b + y", "torch.randn(16, 32); torch.randn(16, 8)")
    layers = layers.replace(
        "super().__init__()", "super().__init__()\n        self.a, self.b = nn.Parameter(torch.randn(32, 24)), nn.Parameter(torch.randn(24, 8))"
    )
    swallowed = semantics.changed(layers, "torch.relu(x @ self.a)", "torch.fmax(x @ self.a, torch.zeros(()))")
    assert not swallowed.wrong and [finding.rule for finding in swallowed.verdict.findings] == ["nan"]
    assert "NaN in the inputs is lost" in semantics.changed(layers, "+ y", "+ y.nan_to_num(0.5)").wrong
    assert not semantics.changed(layers, "+ y", "+ y + 0 * x.sum()").wrong
    masked = task("return torch.tril(x) @ y", "torch.randn(64, 64); torch.randn(64, 16)")
    assert not semantics.changed(masked, "torch.tril(x) @ y", "torch.stack([x[i, : i + 1] @ y[: i + 1] for i in range(64)])").wrong
    best = task("return x.topk(8).values", "torch.randn(16, 64)")
    assert not semantics.changed(best, "x.topk(8)", "x.nan_to_num(-9.0, torch.inf).topk(8)").wrong
    assert "infinity in the inputs is lost" in semantics.changed(best, "x.topk(8)", "x.clamp(max=1e30).topk(8)").wrong


@pytest.mark.parametrize(
    "body, inputs, init, options",
    [
        ("self.n += 1\nreturn x.mean(-1)", "torch.randn(32, 64)", "self.register_buffer('n', torch.zeros(()))", {}),
        ("return F.dropout(x, 0.1).mean(-1)", "torch.randn(32, 64)", "", {}),
        ("return x.mean(-1), x.topk(4).values", "torch.randn(32, 64)", "", {}),
        ("return torch.tanh(x.mean(-1, keepdim=True) * self.w)", "torch.randn(32, 64)", "self.w = nn.Parameter(torch.randn(64))", {"backward": True}),
    ],
    ids=["state", "random numbers", "an ordering", "gradients"],
)
def test_nan_is_handed_on_beside(semantics, body, inputs, init, options):
    top = task(body, inputs, init)
    lossy = ("F.dropout(x", "F.dropout(x.nan_to_num(0.0, torch.inf)") if "dropout" in body else ("x.mean", "x.nan_to_num(0.0, torch.inf).mean")
    assert "NaN in the inputs is lost" in semantics.changed(top, *lossy, **options).wrong
    assert not semantics.same(top, **options).wrong


@pytest.mark.parametrize("bounds", ["max=1e30", "min=-1e30"])
def test_infinity_of_either_sign_is_handed_on(semantics, bounds):
    rows = task("return x.mean(-1)", "torch.randn(64, 64)")
    assert "infinity in the inputs is lost" in semantics.changed(rows, "x.mean", f"x.clamp({bounds}).mean").wrong
    whole = task("return x.sum()", "torch.randn(64, 64)")
    assert "infinity in the inputs is lost" in semantics.changed(whole, "x.sum", "x.clamp(max=1e30).sum").wrong


NORMED = task("return self.l(x) / x.sum(-1, keepdim=True)", "torch.randn(512, 128)", init="self.l = nn.Linear(128, 64)")
FIXED = task("return torch.round(self.l(x) * 65536.0).to(torch.int32)", "torch.randn(256, 128)", init="self.l = nn.Linear(128, 64)")
RATIO = task(
    "return (x @ self.a) / (x @ self.b)", "torch.randn(256, 128)", init="self.a, self.b = [nn.Parameter(torch.randn(128, 64)) for _ in 'ab']"
)


@pytest.mark.parametrize("share", [1, 0.9, 0.5, 0.2, 0.08])
def test_16_bits_for_the_rows_that_no_bound_sees(semantics, share):
    """The largest error is in the rows whose divisor nearly cancels."""
    plain = semantics.same(NORMED)
    assert not plain.wrong, plain.wrong
    some = "s = x.sum(-1, keepdim=True)\n        y = self.l(x) / s\n        n = s.abs().flatten().kthvalue(int({share} * len(x))).values\n"
    some += "        z = (x.bfloat16() @ self.l.weight.bfloat16().t()).float() + self.l.bias\n        return torch.where(s.abs() <= n, z / s, y)"
    some = some.replace("s.abs().flatten().kthvalue", "(-s.abs()).flatten().kthvalue").replace("s.abs() <= n", "-s.abs() <= n")
    assert semantics.changed(NORMED, "return self.l(x) / x.sum(-1, keepdim=True)", some.format(share=share)).wrong


def test_tf32_for_most_of_a_heavy_tail_and_rounded_integers(semantics):
    assert not semantics.same(RATIO).wrong and not semantics.same(FIXED).wrong
    short = "(x.view(torch.int32) & -8192).view(torch.float32)"
    assert semantics.changed(RATIO, "(x @ self.a) / (x @ self.b)", f"({short} @ self.a) / (x @ self.b)").wrong
    naive = "(sum(x[:, i : i + 16] @ self.l.weight[:, i : i + 16].T for i in range(0, 128, 16)) + self.l.bias)"
    assert not semantics.changed(FIXED, "self.l(x)", naive).wrong
    rows = f"torch.where((torch.arange(len(x)) % 8 == 0)[:, None], F.linear({short}, self.l.weight, self.l.bias), self.l(x))"
    assert semantics.changed(FIXED, "self.l(x)", rows).wrong
    assert "of 16,384 elements are off" in semantics.changed(FIXED, "self.l(x)", "self.l(x) + 1").wrong


def test_calls_after_one_with_nan_are_held_to_their_own_outputs(semantics):
    """In the full tier, more of the task's own inputs follow."""
    outcome = semantics.same(task("return torch.softmax(x, -1)"), full=True)
    assert outcome.wrong == "" and {"not a number", "task inputs 3"} <= {trial.name for trial in outcome.trials}


# Simulates a device-side assertion, after which a process no longer responds.
ASSERTING = """
import torch
import torch.nn as nn

lost = []


class Model(nn.Module):
    def forward(self, x, mask):
        if lost or not bool(mask.any(dim=0).all()):
            lost.append(1)
            raise RuntimeError("CUDA error: device-side assert triggered")
        last = mask.sum(dim=0) - 1
        return torch.tanh(x.gather(0, last[None])[0]) * 2


def get_inputs():
    return [torch.randn(16, 64), torch.arange(16)[:, None] < torch.randint(4, 16, (64,))]


def get_init_inputs():
    return []
"""


COUNTING = ASSERTING.replace(
    "    def forward(self, x, mask):\n",
    '    def __init__(self):\n        super().__init__()\n        self.register_buffer("calls", torch.zeros(()))\n\n'
    "    def forward(self, x, mask):\n        self.calls += 1\n",
)


@pytest.mark.parametrize("task", [ASSERTING, COUNTING])
def test_inputs_on_which_the_device_asserts_are_none_that_the_task_accepts(semantics, task):
    """Masks are varied too, and one without a true element may end the reference's context: a fresh process then takes over, and both sides
    restart."""
    program = task.replace("class Model(", "class ModelNew(").replace("lost.append(1)", "pass").replace("if lost or", "if")
    outcome = semantics.judge(program, task)
    assert not outcome.wrong, outcome.wrong
    wrong = semantics.judge(program.replace("* 2", "* 2.1"), task)
    assert wrong.wrong
