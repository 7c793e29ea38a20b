"""A gated residual feed-forward block: two projections, SiLU gate, projection back, residual and a learned layer scale."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, features: int, hidden: int):
        super().__init__()
        self.up = nn.Linear(features, hidden)
        self.gate = nn.Linear(features, hidden)
        self.down = nn.Linear(hidden, features)
        self.layer_scale = nn.Parameter(torch.full((features,), 0.1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = F.silu(self.gate(x)) * self.up(x)
        return x + self.layer_scale * torch.tanh(self.down(hidden))


def get_inputs():
    return [torch.rand(8192, 64)]


def get_init_inputs():
    return [64, 128]
