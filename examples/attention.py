"""Causal multi-head self-attention, written out: projections, scaled scores, mask, softmax, weighted sum."""

import math

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features: int, heads: int, tokens: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(features, 3 * features)
        self.out = nn.Linear(features, features)
        self.register_buffer("visible", torch.tril(torch.ones(tokens, tokens, dtype=torch.bool)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, features = x.shape
        q, k, v = self.qkv(x).view(batch, tokens, 3, self.heads, features // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(features // self.heads)
        scores = scores.masked_fill(~self.visible[:tokens, :tokens], float("-inf"))
        y = torch.softmax(scores, dim=-1) @ v
        return self.out(y.transpose(1, 2).reshape(batch, tokens, features))


batch, tokens, features, heads = 4, 256, 128, 8


def get_inputs():
    return [torch.rand(batch, tokens, features)]


def get_init_inputs():
    return [features, heads, tokens]
