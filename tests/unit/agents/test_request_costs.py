"""Kinds of faults by which a request cost its reader a failed attempt, a call or a slower program."""

from __future__ import annotations

import re

import pytest
import torch
from test_requests import H200

from agents.roles import digest, steps
from agents.roles.compiled import Compiled
from agents.roles.planner import payload_of
from agents.roles.prompts import part
from agents.roles.situation import Plan
from agents.roles.steps import OF_ONE_LOOP, WITHOUT_GAIN
from agents.strategies import CATALOGUE, by_name
from compiler import make_plan
from verifier.parties.capturing.capture import capture
from verifier.profiling.diagnosing import diagnosis

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


def planned(model: torch.nn.Module, *inputs: torch.Tensor, source: str = "a task") -> Plan:
    captured = capture(model, list(inputs), source, "train")
    found = Compiled(make_plan(captured, source, H200, "fp32-strict"), H200)
    return Plan(payload_of(found, None), (), found)


@pytest.fixture(scope="module")
def routed() -> Plan:
    names: dict = {"__name__": "task"}
    exec(compile(EXPERTS, "<task>", "exec"), names)  # a task written by this test
    return planned(names["Model"](), *names["get_inputs"](), source=EXPERTS)


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
