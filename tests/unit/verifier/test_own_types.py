"""A task that chooses 16-bit types itself is not cast by the precision policy."""

from __future__ import annotations

import pytest

from verifier.own_types import chooses_types

TASK = """import torch
import torch.nn as nn

{top}

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, x, gain):
        {forward}
        return x * gain


def get_inputs():
    return {inputs}


def get_init_inputs():
    return []
"""
PLAIN = {"top": "", "init": "self.half = 3", "forward": "x = x + 0", "inputs": "[torch.rand(4), torch.rand(4)]"}


@pytest.mark.parametrize(
    "part",
    [
        {"inputs": "[torch.rand(4, dtype=torch.bfloat16), torch.rand(4)]"},
        {"inputs": "[torch.rand(4).half(), torch.rand(4)]"},
        {"inputs": "[torch.rand(4).to(torch.half), torch.rand(4)]"},
        {"inputs": "[torch.rand(4).bfloat16(), torch.rand(4)]"},
        {"top": "DTYPE = torch.float16", "inputs": "[torch.rand(4, dtype=DTYPE), torch.rand(4)]"},
        {"top": "def drawn():\n    return torch.rand(4, dtype=torch.bfloat16)", "inputs": "[drawn(), torch.rand(4)]"},
        {"init": "self.register_buffer('kept', torch.zeros(4, dtype=torch.bfloat16))"},
        {"init": "self.kept = nn.Linear(4, 4, dtype=getattr(torch, 'float16'))"},
    ],
)
def test_what_draws_the_inputs_or_constructs_the_model_chooses(part):
    assert chooses_types(TASK.format(**{**PLAIN, **part}))


@pytest.mark.parametrize(
    "part",
    [
        {},
        {"init": "half = 4 // 2"},
        {"init": "self.width, self.half = 8, 4"},
        {"forward": "x = x.half().float()"},
        {"forward": "x = x.to(torch.bfloat16).float()"},
        {"top": "def rounded(x):\n    return x.to(torch.bfloat16).float()", "forward": "x = rounded(x)"},
        {"inputs": "[torch.rand(4), torch.rand(4).to(torch.float8_e4m3fn)]"},
        {"inputs": "[torch.rand(4), torch.rand(4, dtype=torch.float32)]"},
    ],
)
def test_what_forward_computes_in_does_not(part):
    assert not chooses_types(TASK.format(**{**PLAIN, **part}))


def test_a_source_that_cannot_be_read_chooses_nothing():
    assert not chooses_types("class Model(:\n")
