"""One new token per sequence, which is written to a static key-value cache and attends to it. Sequences differ in length.

Source: Ainslie et al., arXiv 2305.13245, with the static cache that serving systems use to keep shapes constant (Pope et al., arXiv 2211.05102).
"""

import torch
import torch.nn as nn

BATCH, CAPACITY, WIDTH, HEADS, GROUPS = 16, 2048, 2048, 32, 8


class Model(nn.Module):
    def __init__(self, width, heads, groups, base):
        super().__init__()
        self.heads, self.groups, self.features = heads, groups, width // heads
        self.qkv = nn.Linear(width, (heads + 2 * groups) * self.features, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.register_buffer("inv_freq", 1.0 / base ** (torch.arange(0, self.features, 2).float() / self.features), persistent=False)

    def rotate(self, x, positions):
        """`x` (batch, heads, features), with one position per sequence."""
        angles = positions[:, None].float() * self.inv_freq.float()
        cos, sin = angles.cos()[:, None].to(x.dtype), angles.sin()[:, None].to(x.dtype)
        first, second = x.chunk(2, dim=-1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)

    def forward(self, hidden, keys, values, positions):
        batch = hidden.shape[0]
        q, k, v = self.qkv(hidden).view(batch, -1, self.features).split([self.heads, self.groups, self.groups], dim=1)
        q, k = self.rotate(q, positions), self.rotate(k, positions)
        rows = torch.arange(batch, device=hidden.device)
        keys[rows, :, positions] = k
        values[rows, :, positions] = v
        q = q.view(batch, self.groups, self.heads // self.groups, self.features)
        scores = torch.matmul(q, keys.transpose(-1, -2)) * self.features**-0.5
        seen = torch.arange(keys.shape[2], device=hidden.device)[None] <= positions[:, None]
        scores = scores.masked_fill(~seen[:, None, None], float("-inf"))
        context = torch.matmul(torch.softmax(scores.float(), dim=-1).to(values.dtype), values)
        return self.out(context.reshape(batch, -1))


def get_inputs():
    cache = (BATCH, GROUPS, CAPACITY, WIDTH // HEADS)
    return [torch.randn(BATCH, WIDTH), torch.randn(cache), torch.randn(cache), torch.randint(CAPACITY // 2, CAPACITY, (BATCH,))]


def get_init_inputs():
    return [WIDTH, HEADS, GROUPS, 10000.0]
