"""A pre-norm transformer block: self-attention and a feed-forward part, each with a residual connection."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Attention(nn.Module):
    def __init__(self, features: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(features, 3 * features)
        self.out = nn.Linear(features, features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, features = x.shape
        q, k, v = self.qkv(x).view(batch, tokens, 3, self.heads, features // self.heads).permute(2, 0, 3, 1, 4)
        weights = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(features // self.heads), dim=-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, tokens, features))


class Model(nn.Module):
    def __init__(self, features: int, heads: int, hidden: int):
        super().__init__()
        self.norm1 = nn.LayerNorm(features)
        self.attention = Attention(features, heads)
        self.norm2 = nn.LayerNorm(features)
        self.up = nn.Linear(features, hidden)
        self.down = nn.Linear(hidden, features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


batch, tokens, features, heads, hidden = 8, 128, 128, 4, 512


def get_inputs():
    return [torch.rand(batch, tokens, features)]


def get_init_inputs():
    return [features, heads, hidden]
