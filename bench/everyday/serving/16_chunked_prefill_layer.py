"""A whole decoder layer over one chunk of a prompt: 256 new tokens attend to 1,792 cached ones and to each other. Queries and keys are normalised.

Source: Agrawal et al., "Sarathi-Serve", arXiv 2403.02310 (chunked prefill); the layer of Qwen3 (arXiv 2505.09388).
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH, CHUNK, PAST, WIDTH, INNER, HEADS, GROUPS, FEATURES = 2, 256, 1792, 2048, 6144, 16, 8, 128


class RMSNorm(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)).to(x.dtype)


class Model(nn.Module):
    def __init__(self, width, inner, heads, groups, features):
        super().__init__()
        self.heads, self.groups, self.features = heads, groups, features
        self.before_attention, self.before_mlp = RMSNorm(width), RMSNorm(width)
        self.q_proj = nn.Linear(width, heads * features, bias=False)
        self.k_proj = nn.Linear(width, groups * features, bias=False)
        self.v_proj = nn.Linear(width, groups * features, bias=False)
        self.o_proj = nn.Linear(heads * features, width, bias=False)
        self.q_norm, self.k_norm = RMSNorm(features), RMSNorm(features)
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)
        self.register_buffer("inv_freq", 1.0 / 1e6 ** (torch.arange(0, features, 2).float() / features), persistent=False)

    def attention(self, x, past_keys, past_values):
        batch, length, _ = x.shape
        past = past_keys.shape[2]
        q = self.q_norm(self.q_proj(x).view(batch, length, self.heads, self.features)).transpose(1, 2)
        k = self.k_norm(self.k_proj(x).view(batch, length, self.groups, self.features)).transpose(1, 2)
        v = self.v_proj(x).view(batch, length, self.groups, self.features).transpose(1, 2)
        at = torch.arange(past, past + length, device=x.device)
        angles = torch.outer(at.float(), self.inv_freq.float()).repeat(1, 2)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)

        def rotate(t):
            return t * cos + torch.cat((-t[..., self.features // 2 :], t[..., : self.features // 2]), dim=-1) * sin

        q, k = rotate(q), rotate(k)
        k, v = torch.cat((past_keys, k), dim=2), torch.cat((past_values, v), dim=2)
        seen = torch.arange(past + length, device=x.device)[None, :] <= at[:, None]
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=True)
        return self.o_proj(out.transpose(1, 2).reshape(batch, length, -1)), k, v

    def forward(self, hidden, past_keys, past_values):
        attended, keys, values = self.attention(self.before_attention(hidden), past_keys, past_values)
        hidden = hidden + attended
        x = self.before_mlp(hidden)
        return hidden + self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x)), keys, values


def get_inputs():
    past = (BATCH, GROUPS, PAST, FEATURES)
    return [torch.randn(BATCH, CHUNK, WIDTH), torch.randn(past), torch.randn(past)]


def get_init_inputs():
    return [WIDTH, INNER, HEADS, GROUPS, FEATURES]
