"""A task whose memory can be counted in multiples of its input: one input, one output of the same size, and one temporary of the same size while the
mean is computed."""

from __future__ import annotations


def l1_norm(rows: int, columns: int) -> str:
    """Returns a task that divides rows by their mean absolute value; its fp32 input and output each take `4 * rows * columns` bytes."""
    return f"""import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x / torch.mean(torch.abs(x), dim=1, keepdim=True)


def get_inputs():
    return [torch.rand({rows}, {columns})]


def get_init_inputs():
    return []
"""
