"""Attention over a prompt within a window of the last 512 tokens, with scores capped by a hyperbolic tangent.

Source: Gemma Team, "Gemma 2", arXiv 2408.00118, section 2 (local attention, logit soft-capping); the window from Beltagy et al., arXiv 2004.05150.
"""

import torch
import torch.nn as nn

BATCH, LENGTH, WIDTH, HEADS, GROUPS, FEATURES, WINDOW, CAP = 1, 2048, 2304, 8, 4, 256, 512, 50.0


class Model(nn.Module):
    def __init__(self, width, heads, groups, features, window, cap):
        super().__init__()
        self.heads, self.groups, self.features, self.window, self.cap = heads, groups, features, window, cap
        self.q_proj = nn.Linear(width, heads * features, bias=False)
        self.k_proj = nn.Linear(width, groups * features, bias=False)
        self.v_proj = nn.Linear(width, groups * features, bias=False)
        self.o_proj = nn.Linear(heads * features, width, bias=False)

    def forward(self, hidden):
        batch, length, _ = hidden.shape
        q = self.q_proj(hidden).view(batch, length, self.heads, self.features).transpose(1, 2)
        k = self.k_proj(hidden).view(batch, length, self.groups, self.features).transpose(1, 2)
        v = self.v_proj(hidden).view(batch, length, self.groups, self.features).transpose(1, 2)
        shared = self.heads // self.groups
        k = k[:, :, None].expand(-1, -1, shared, -1, -1).reshape(batch, self.heads, length, self.features)
        v = v[:, :, None].expand(-1, -1, shared, -1, -1).reshape(batch, self.heads, length, self.features)
        scores = torch.matmul(q, k.transpose(2, 3)) * self.features**-0.5
        scores = torch.tanh(scores / self.cap) * self.cap
        at = torch.arange(length, device=hidden.device)
        distance = at[:, None] - at[None, :]
        allowed = (distance >= 0) & (distance < self.window)
        scores = torch.where(allowed, scores, torch.finfo(scores.dtype).min)
        weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
        return self.o_proj(torch.matmul(weights, v).transpose(1, 2).reshape(batch, length, -1))


def get_inputs():
    return [torch.randn(BATCH, LENGTH, WIDTH)]


def get_init_inputs():
    return [WIDTH, HEADS, GROUPS, FEATURES, WINDOW, CAP]
