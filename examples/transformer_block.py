"""A pre-norm transformer block: attention and a GELU feed-forward network, each with its residual."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Attention(nn.Module):
    def __init__(self, features: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(features, 3 * features, bias=False)
        self.out = nn.Linear(features, features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, features = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=2))
        weights = torch.softmax((q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(q.size(-1))), dim=-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, features))


class Model(nn.Module):
    def __init__(self, features: int, heads: int):
        super().__init__()
        self.norm1 = nn.LayerNorm(features)
        self.attention = Attention(features, heads)
        self.norm2 = nn.LayerNorm(features)
        self.up = nn.Linear(features, 4 * features)
        self.down = nn.Linear(4 * features, features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


def get_inputs():
    return [torch.rand(4, 256, 96)]


def get_init_inputs():
    return [96, 6]
