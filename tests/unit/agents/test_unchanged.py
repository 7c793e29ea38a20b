"""A program that merely returns the task is recognised, whatever names it uses; one that differs in any code that runs is not."""

from __future__ import annotations

import pytest

from agents.unchanged import unchanged

TASK = '''
import torch
import torch.nn as nn


def scaled(x, by):
    return x * by


class Model(nn.Module):
    """A layer."""

    def __init__(self, size: int):
        super(Model, self).__init__()
        self.linear = nn.Linear(size, size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Applies it."""
        y = self.linear(x)
        return scaled(y, 2.0)


def get_inputs():
    return [torch.rand(4, 8)]
'''
RENAMED = TASK.replace("Model", "ModelNew")
OTHERWISE = """
import torch, torch.nn as nn
def twice(value, factor): return value * factor
class ModelNew(nn.Module):
    def __init__(self, n):
        super(ModelNew, self).__init__()
        self.linear = nn.Linear(n, n)  # as before
    def forward(self, given):
        out = self.linear(given)
        return twice(out, 2.0)
"""

DELEGATES = "    def forward(self, x):\n        return super().forward(x)\n"


@pytest.mark.parametrize(
    "program",
    [
        RENAMED,
        OTHERWISE,
        TASK + "\n\nModelNew = Model\n",
        TASK + "\n\nclass ModelNew(Model):\n    pass\n",
        TASK + "\n\nclass ModelNew(Model):\n    def __init__(self, size):\n        super().__init__(size)\n\n" + DELEGATES,
    ],
)
def test_the_task_under_other_names_is_the_task(program):
    assert unchanged(TASK, program)


@pytest.mark.parametrize(
    "program",
    [
        RENAMED.replace("2.0", "2"),
        RENAMED.replace("x * by", "x.mul(by)"),
        RENAMED.replace("self.linear(x)", "self.linear(x.contiguous())"),
        TASK + "\n\nclass ModelNew(Model):\n    def forward(self, x):\n        return super().forward(x.half())\n",
        TASK + "\n\nModelNew = torch.compile(Model)\n",
        "class ModelNew:",
        "",
    ],
)
def test_whatever_runs_otherwise_is_a_program_of_its_own(program):
    assert not unchanged(TASK, program)
