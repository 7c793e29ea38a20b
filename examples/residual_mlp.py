"""A pre-norm feed-forward block with a residual connection: narrow layers over many tokens."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, features: int, hidden: int):
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self.up = nn.Linear(features, hidden)
        self.down = nn.Linear(hidden, features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


batch, tokens, features, hidden = 16, 512, 128, 256


def get_inputs():
    return [torch.rand(batch, tokens, features)]


def get_init_inputs():
    return [features, hidden]
