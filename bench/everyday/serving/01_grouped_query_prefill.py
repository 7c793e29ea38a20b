"""Causal grouped-query attention over a prompt: 32 query heads share 8 key and value heads, with rotary positions.

Source: Ainslie et al., "GQA: Training Generalized Multi-Query Transformer Models", arXiv 2305.13245; sizes as in Llama 3 (arXiv 2407.21783), with
half the width.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH, LENGTH, WIDTH, HEADS, GROUPS = 2, 1024, 2048, 32, 8


def rotate(x, cos, sin):
    """`x` (batch, heads, length, features); the two halves of the features are the coordinates."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Model(nn.Module):
    def __init__(self, width, heads, groups, base):
        super().__init__()
        self.heads, self.groups, self.features = heads, groups, width // heads
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, groups * self.features, bias=False)
        self.v_proj = nn.Linear(width, groups * self.features, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)
        self.register_buffer("inv_freq", 1.0 / base ** (torch.arange(0, self.features, 2).float() / self.features), persistent=False)

    def forward(self, hidden, positions):
        batch, length, width = hidden.shape
        q = self.q_proj(hidden).view(batch, length, self.heads, self.features).transpose(1, 2)
        k = self.k_proj(hidden).view(batch, length, self.groups, self.features).transpose(1, 2)
        v = self.v_proj(hidden).view(batch, length, self.groups, self.features).transpose(1, 2)
        angles = positions[:, :, None].float() * self.inv_freq.float()
        angles = torch.cat((angles, angles), dim=-1)[:, None]
        cos, sin = angles.cos().to(hidden.dtype), angles.sin().to(hidden.dtype)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k = k.repeat_interleave(self.heads // self.groups, dim=1)
        v = v.repeat_interleave(self.heads // self.groups, dim=1)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(out.transpose(1, 2).reshape(batch, length, width))


def get_inputs():
    return [torch.randn(BATCH, LENGTH, WIDTH), torch.arange(LENGTH).expand(BATCH, LENGTH).contiguous()]


def get_init_inputs():
    return [WIDTH, HEADS, GROUPS, 500000.0]
