"""Multi-head attention with a causal mask, written out: scores, scale, mask, softmax, weighted sum."""

import math

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features: int, heads: int, length: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(features, 3 * features)
        self.out = nn.Linear(features, features)
        self.register_buffer("mask", torch.tril(torch.ones(length, length)).bool())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, features = x.shape
        q, k, v = self.qkv(x).split(features, dim=2)
        q = q.view(batch, length, self.heads, -1).transpose(1, 2)
        k = k.view(batch, length, self.heads, -1).transpose(1, 2)
        v = v.view(batch, length, self.heads, -1).transpose(1, 2)
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(q.size(-1))
        scores = scores.masked_fill(~self.mask[:length, :length], float("-inf"))
        mixed = torch.softmax(scores, dim=-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, length, features))


def get_inputs():
    return [torch.rand(4, 256, 128)]


def get_init_inputs():
    return [128, 8, 256]
