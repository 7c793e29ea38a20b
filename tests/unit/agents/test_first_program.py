"""The built-in Coder's choices for its first program, before anything is measured."""

from __future__ import annotations

import asyncio

import pytest
import torch

from agents.roles.coder import BuiltInCoder
from agents.roles.compiled import Compiled
from agents.roles.situation import Plan, Situation
from agents.settings import Settings
from compiler import DeviceFigures, make_plan
from compiler.planning.cost import launch_bound
from verifier.parties.capturing.capture import capture

TASK = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, layers, width):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, x):
        for layer in self.layers:
            x = torch.softmax(layer(x).relu(), dim=-1)
        return x


def get_inputs():
    return [torch.rand({rows}, {width})]


def get_init_inputs():
    return [{layers}, {width}]
"""
H200 = DeviceFigures.h200()


def situation_of(layers: int, rows: int, width: int, figures: DeviceFigures = H200) -> Situation:
    source = TASK.format(layers=layers, rows=rows, width=width)
    names: dict = {}
    exec(compile(source, "task.py", "exec"), names)  # a task written by this test
    captured = capture(names["Model"](layers, width), [torch.rand(rows, width)], source, "train")
    plan = make_plan(captured, source, figures, "fp32-strict")
    return Situation(source, "mine", Settings(), capture=captured, plan=Plan({"more": 1}, (), Compiled(plan, figures)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layers", "rows", "width", "figures", "expected"),
    [
        (6, 16, 64, H200, True),
        (1, 16, 64, H200, False),  # with so few groups, the copies cost as much as the change saves
        (6, 8192, 1024, H200, False),  # the device is the bottleneck
        (6, 16, 64, DeviceFigures.cpu(2), False),
    ],
)
def test_short_groups_are_recorded_from_the_start(layers, rows, width, figures, expected):
    situation = situation_of(layers, rows, width, figures)
    assert launch_bound(situation.plan.data.plan) is expected
    edit = asyncio.run(BuiltInCoder().write(None, situation, None, None))
    assert ("torch.cuda.CUDAGraph()" in edit.source) is expected and ("recorded as a CUDA graph" in "".join(edit.says)) is expected


def test_whoever_refuses_the_strategy_gets_none():
    situation = situation_of(6, 16, 64)
    situation.orders.skipped |= {"cuda-graph"}
    assert "CUDAGraph" not in asyncio.run(BuiltInCoder().write(None, situation, None, None)).source
