"""A gated feed-forward layer of a decode step with int8 weights and one scale per output channel.

Source: Dettmers et al., "LLM.int8()", arXiv 2208.07339 (row-wise quantised weights), applied to the weights only.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

TOKENS, WIDTH, INNER = 16, 4096, 11008


class Int8Linear(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.register_buffer("weight", torch.randint(-127, 128, (outputs, inputs), dtype=torch.int8))
        self.register_buffer("scale", torch.rand(outputs) * 2e-4 + 1e-4)

    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype)) * self.scale.to(x.dtype)


class Model(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.gate = Int8Linear(width, inner)
        self.up = Int8Linear(width, inner)
        self.down = Int8Linear(inner, width)

    def forward(self, x):
        return x + self.down(F.silu(self.gate(x)) * self.up(x))


def get_inputs():
    return [torch.randn(TOKENS, WIDTH)]


def get_init_inputs():
    return [WIDTH, INNER]
