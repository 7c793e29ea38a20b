"""Kinds of faults by which a request cost its reader a failed attempt, a call or a slower program."""

from __future__ import annotations

import re

import pytest
import torch
from test_requests import H200, JOB, compiled, situation
from test_requests import report as reported

from agents.memory import Memory
from agents.memory.lessons import whole_clauses
from agents.roles import digest, steps
from agents.roles.compiled import Compiled
from agents.roles.planner import payload_of
from agents.roles.prompts import part
from agents.roles.situation import Attempt, Edit, Plan
from agents.roles.steps import OF_ONE_LOOP, WITHOUT_GAIN
from agents.roles.wrong_rows import rows_text
from agents.strategies import CATALOGUE, by_name
from compiler import Options, make_plan
from verifier.graph import Capture
from verifier.parties.capturing.capture import capture
from verifier.profiling.diagnosing import diagnosis
from verifier.profiling.diagnosing.defects import BY_LITTLE, DIFFERENT, wrong_result_text
from verifier.report import Trial, WrongTensor
from verifier.task import Admission, TensorSpec

FAST = re.compile(r"__(?:exp|exp10|log|log2|log10|pow|sin|cos|tan|fdivide)f\b|\bex2\.approx|\btl\.exp\b|\btl\.exp2\b")


# Methods and routes


def test_several_methods_may_bring_independent_gains():
    said = part("routes")
    assert "by one method or by several at once" in said and "do not depend on each other when few programs are left" in said


def test_nothing_is_called_near_a_ceiling_that_it_is_far_from():
    said = [diagnosis._sentence("memory", 9.0, share, 0.0, None, None, "fp32 units", "", 0) for share in (0.002, 0.4, 0.9)]
    assert said[0].startswith("Nothing is known to be near its ceiling: the least traffic possible would take 0 % of the call")
    assert said[1].startswith("Nearest to its ceiling is memory") and said[2].startswith("Bound by memory")


# Instructions


@pytest.mark.parametrize("language", ["cuda", "triton"])
def test_a_fast_approximation_is_never_shown_without_the_policies_that_allow_it(language):
    for entry in CATALOGUE:
        text = getattr(entry, language)
        assert not FAST.search(text) or "tf32, bf16 or fp16 policy" in text or "fp32-strict" in text, entry.name


def test_a_softmax_takes_its_maximum_first_where_the_row_fits():
    said = digest.how_to_text([by_name("one-pass-softmax")], "cuda")
    assert "take the maximum first" in said and said.index("take the maximum first") < said.index("m2 = fmaxf")
    assert "`s = s * __expf" not in said and "never for values that a choice" in said


@pytest.mark.parametrize("name", ["fuse-row-reduction", "row-cache"])
def test_few_long_rows_are_spread_over_several_blocks(name):
    assert "fewer" in by_name(name).cuda and "`parallel-split`" in by_name(name).cuda
    assert "cluster" in by_name("parallel-split").cuda


# Steps


EXPERTS = """
import torch


class Expert(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.up = torch.nn.Linear(64, 96, bias=False), torch.nn.Linear(64, 96, bias=False)
        self.down = torch.nn.Linear(96, 64, bias=False)

    def forward(self, x):
        return self.down(torch.nn.functional.silu(self.gate(x)) * self.up(x))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.router = torch.nn.Linear(64, 8, bias=False)
        self.experts = torch.nn.ModuleList([Expert() for _ in range(8)])

    def forward(self, tokens):
        weights, picked = torch.topk(torch.softmax(self.router(tokens), dim=-1), 2, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        out = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            rows, place = torch.where(picked == number)
            if rows.numel() == 0:
                continue
            out.index_add_(0, rows, expert(tokens[rows]) * weights[rows, place, None])
        return out


def get_inputs():
    return [torch.randn(64, 64)]


def get_init_inputs():
    return []
"""


def plan_of(captured: Capture, source: str = "a task") -> Plan:
    found = Compiled(make_plan(captured, source, H200, "fp32-strict"), H200)
    return Plan(payload_of(found, None), (), found)


def planned(model: torch.nn.Module, *inputs: torch.Tensor) -> Plan:
    return plan_of(capture(model, list(inputs), "a task", "train"))


@pytest.fixture(scope="module")
def experts() -> Capture:
    names: dict = {"__name__": "task"}
    exec(compile(EXPERTS, "<task>", "exec"), names)  # a task written by this test
    return capture(names["Model"](), names["get_inputs"](), EXPERTS, "train")


@pytest.fixture(scope="module")
def routed(experts) -> Plan:
    return plan_of(experts, EXPERTS)


def test_a_step_that_gains_nothing_by_its_own_figures_is_not_asked_for(routed):
    titles = [step["title"] for step in routed.payload["steps"] if step["space"] == "own kernel"]
    asked = [step["title"] for step in steps.workable(routed)]
    assert "softmax" in titles and "softmax" not in asked, "one launch would replace one launch"
    assert "sum, div" in asked, "one launch replaces two"


def test_the_operators_of_a_loop_over_groups_are_one_step(routed):
    first = steps.workable(routed)[0]
    assert first["title"].startswith("a loop over groups: routing") and first["reason"] == OF_ONE_LOOP
    assert all(f"g{n}" in first["operators"] for n in range(7, 14)) and "g6" not in first["operators"]
    assert first["contract"] == "same shapes, strides and dtypes as the reference", "once, although it is that of each"
    assert "floor of this step" in digest.step_text(first, routed.data)


def test_a_plan_without_any_gain_says_so():
    plan = planned(torch.nn.Softmax(dim=-1), torch.randn(64, 8))
    [step] = steps.workable(plan)
    assert step["title"] == "softmax" and step["reason"] == WITHOUT_GAIN
    two = planned(torch.nn.Sequential(torch.nn.Softmax(dim=-1), torch.nn.Linear(8, 8), torch.nn.Softmax(dim=-1)), torch.randn(64, 8))
    [step] = steps.workable(two)
    assert step["reason"] == WITHOUT_GAIN and step["title"] == "the rest: softmax" and len(step["operators"]) == 2


def test_steps_come_in_the_order_of_their_gains():
    small, large = torch.nn.BatchNorm2d(4), torch.nn.BatchNorm2d(64)
    model = torch.nn.Sequential(small, torch.nn.ReLU(), torch.nn.Conv2d(4, 64, 3), large, torch.nn.ReLU())
    asked = steps.workable(planned(model, torch.randn(2, 4, 128, 128)))
    own = [step["id"] for step in asked if step["title"].startswith("batch norm")]
    assert len(own) == 2 and int(own[0][1:]) > int(own[1][1:])


def test_a_model_s_plan_keeps_its_steps_and_their_order(routed):
    mine = [{"id": f"s{n}", "title": "t", "space": "own kernel", "operators": [f"g{n}"], "strategies": ["one-pass-softmax"]} for n in (6, 2)]
    assert steps.workable(Plan({"steps": mine}, (), routed.data)) == mine


def test_the_strategies_of_a_step_suit_its_rows():
    plan = planned(torch.nn.Sequential(torch.nn.BatchNorm2d(16), torch.nn.ReLU()), torch.randn(2, 16, 64, 64))
    assert "parallel-split" in steps.workable(plan)[0]["strategies"], "16 rows of 8,192 elements for 132 multiprocessors"
    many = planned(torch.nn.Sequential(torch.nn.BatchNorm2d(256), torch.nn.ReLU()), torch.randn(2, 256, 64, 64))
    assert "parallel-split" not in steps.workable(many)[0]["strategies"]
    short = planned(torch.nn.Sequential(torch.nn.Softmax(dim=-1), torch.nn.ReLU()), torch.randn(4096, 512))
    assert "one-pass-softmax" not in steps.workable(short)[0]["strategies"], "its rows fit in registers"
    long = planned(torch.nn.Sequential(torch.nn.Softmax(dim=-1), torch.nn.ReLU()), torch.randn(2, 100_000))
    assert "one-pass-softmax" in steps.workable(long)[0]["strategies"]


# Lessons


def failed(detail: str, *wrong: WrongTensor, changes: str = "a faster softmax", options: Options | None = None, **trial) -> Attempt:
    found = reported(JOB, "wrong_result", message=detail)
    found.trials = [Trial(name="tiny", seed=0, ok=False, detail=detail, wrong=list(wrong), **trial)]
    return Attempt(1, None, Edit("y = 2\n", "t", changes, (), options=options), found)


def row(**more) -> WrongTensor:
    known = {
        "name": "out", "wrong": 64, "elements": 4096, "first": [7, 0], "value": "1", "expected": "2", "error": 0.3, "bound": 1e-5,
        "where": "dimension 0: 7 of 64 (all elements there)",
    }  # fmt: skip
    return WrongTensor(**(known | more))


@pytest.mark.parametrize(
    ("part", "shape", "said"),
    [
        (row(), None, "all elements of 1 row of 64 (of 64 rows)"),
        (row(wrong=128, where="dimension 0: 7, 9 of 64 (all elements there)"), None, "all elements of 2 rows of 64 (of 64 rows)"),
        (row(first=[1, 7, 0], where="dimension 0: 1 of 2; dimension 1: 7 of 32 (all elements there)"), None, "all elements of 1 row of 64"),
        (row(wrong=640, where="dimension 0: 10 of 64, between 3 and 60"), (64, 64), "as many as all elements of 10 rows of 64"),
        (row(wrong=640, where="dimension 0: 10 of 64, between 3 and 60"), None, ""),
        (row(wrong=4, where="dimension 1: the last 4 of 64"), (64, 64), ""),
        (row(wrong=4096, where="every element"), (64, 64), ""),
        (row(wrong=63, where="dimension 0: 7 of 64"), (64, 64), ""),
    ],
)
def test_wrong_elements_that_are_whole_rows_are_said_to_be(part, shape, said):
    found = rows_text(part, shape)
    assert found.startswith(said) and bool(found) == bool(said)


def test_few_wrong_rows_of_a_task_with_choices_are_explained_by_a_choice(experts, routed):
    attempt = failed("tiny: out: 64 of 4,096 elements are off; first at [7, 0]: 1 instead of 2", row(), options=Options())
    known = situation(attempt, plan=routed.data, capture=experts)
    said = Memory.of(known).digest("errors")
    assert "They are all elements of 1 row of 64 (of 64 rows). The task chooses (topk, routing), so one choice may have been made differently" in said
    assert "in the reference's order and precision" in said and "That program computed them itself: g2 softmax" in said
    assert said.endswith("The change of candidate 1: a faster softmax")
    many = failed("out is off", row(wrong=2048, where="dimension 0: 0 to 31 of 64 (all elements there)"))
    assert "The task chooses" not in Memory.of(situation(many, plan=routed.data, capture=experts)).digest("errors"), "half of the rows are a defect"


def test_rows_of_a_task_without_choices_are_only_counted():
    captured = capture(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()), [torch.randn(64, 64)], "a task", "train")
    said = Memory.of(situation(failed("out is off", row()), capture=captured)).digest("errors")
    assert "all elements of 1 row" in said and "The task chooses" not in said


STATE = (
    "bn.running_var was not updated as the task does: 1 of 384 elements are off; first at [7]: 0.000566004252 instead of 0.00023148286; "
    "most at [7]: 0.000566004252 instead of 0.00023148286; error 0.52, bound {} (max |a-b| / (|b| + rms(b))); its timed calls took 0.616 ms, "
    "eager's 2.51 ms, and the rest of a message that is longer than a lesson"
)


def test_a_state_that_is_barely_over_a_widened_bound_reads_as_amplified_rounding():
    near, skipped = failed(STATE.format(0.458)), failed(STATE.format("0.0001"))
    said = Memory.of(situation(near)).digest("errors")
    assert "bn.running_var is a little off" in said and "not updated" not in said
    assert "Its error is 1.1 times its bound" in said and "not as a missing update" in said
    assert wrong_result_text(near.report).startswith(BY_LITTLE)
    said = Memory.of(situation(skipped)).digest("errors")
    assert "was not updated as the task does" in said and "missing update" not in said
    assert wrong_result_text(skipped.report) == DIFFERENT
    every = failed(
        STATE.format(0.458), row(name="bn.running_var", wrong=384, elements=384, first=[0], where="every element", error=0.52, bound=0.458)
    )
    assert wrong_result_text(every.report) == DIFFERENT, "all elements are off"


def test_a_lesson_ends_with_a_clause():
    said = Memory.of(situation(failed(STATE.format(0.458)))).digest("errors")
    assert len(STATE) > 300 and "timed calls took" not in said and "bound 0.458 (max |a-b| / (|b| + rms(b)))" in said
    assert whole_clauses("one; two and three", 12) == "one" and whole_clauses("words without an end", 10) == "words"
    assert whole_clauses("x" * 50, 10) == "x" * 10 and whole_clauses("short.", 10) == "short."


# Tasks


def test_a_task_that_pytorch_itself_computes_far_from_fp64_says_so():
    spec = TensorSpec(shape=(2, 8), dtype="float32")
    chaotic = Admission(task="t", ok=True, outputs=[spec], decided=0.0)
    normed = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 8), torch.nn.BatchNorm2d(8))
    known = situation(capture=capture(normed, [torch.randn(2, 3, 8, 8)], "a task", "train"))
    [said] = digest.own_error(chaotic, known)
    assert "rounding is amplified on the way: a batch norm over 2 values a channel" in said and "Stay close to eager's order of arithmetic" in said
    assert "batch norm over" not in digest.own_error(chaotic, situation())[0]
    assert digest.own_error(chaotic.model_copy(update={"decided": None}), known) == [], "fp64 was not computed, so nothing is known"
    whole = chaotic.model_copy(update={"outputs": [spec.model_copy(update={"dtype": "int64"})]})
    assert digest.own_error(whole, known) == []


def test_a_plan_gives_the_floor_in_both_arithmetics():
    known = situation(capture=Capture(task="t", mode="train", flops=35 * 10**9, bytes_min=10**6), plan=compiled())
    payload = {"summary": "1 group, floor 300 us", "floor_ms": 0.3}
    said = digest.plan_text(payload, known)
    assert said == "1 group, floor 300 us with each fp32 product as three of TF32, 135 us as three of fp16"
    assert digest.plan_text({"summary": "My plan", "floor_ms": 0.3}, known) == "My plan"
    known.capture.bytes_min = 10**10
    assert digest.plan_text(payload, known) == "1 group, floor 300 us", "bytes bound it"
