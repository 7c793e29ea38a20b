"""Multi-head latent attention over a prompt: keys and values are expanded from a shared narrow latent, and positions are encoded in separate
features.

Source: DeepSeek-AI, "DeepSeek-V2", arXiv 2405.04434, section 2.1; sizes of the Lite model.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH, LENGTH, WIDTH, HEADS, LATENT, PLAIN, TURNED, VALUE = 2, 1024, 2048, 16, 512, 128, 64, 128


class RMSNorm(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)).to(x.dtype)


def rotate(x, cos, sin):
    """Rotates pairs of neighbouring features, which are the two coordinates."""
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


class Model(nn.Module):
    def __init__(self, width, heads, latent, plain, turned, value):
        super().__init__()
        self.heads, self.latent, self.plain, self.turned, self.value = heads, latent, plain, turned, value
        self.q_proj = nn.Linear(width, heads * (plain + turned), bias=False)
        self.kv_down = nn.Linear(width, latent + turned, bias=False)
        self.kv_norm = RMSNorm(latent)
        self.kv_up = nn.Linear(latent, heads * (plain + value), bias=False)
        self.o_proj = nn.Linear(heads * value, width, bias=False)
        self.register_buffer("inv_freq", 1.0 / 10000.0 ** (torch.arange(0, turned, 2).float() / turned), persistent=False)

    def forward(self, hidden):
        batch, length, _ = hidden.shape
        angles = torch.outer(torch.arange(length, device=hidden.device).float(), self.inv_freq.float())
        cos, sin = angles.cos().to(hidden.dtype), angles.sin().to(hidden.dtype)
        q = self.q_proj(hidden).view(batch, length, self.heads, -1).transpose(1, 2)
        q_plain, q_turned = q.split([self.plain, self.turned], dim=-1)
        latent, k_turned = self.kv_down(hidden).split([self.latent, self.turned], dim=-1)
        kv = self.kv_up(self.kv_norm(latent)).view(batch, length, self.heads, -1).transpose(1, 2)
        k_plain, v = kv.split([self.plain, self.value], dim=-1)
        k_turned = rotate(k_turned[:, None], cos, sin).expand(-1, self.heads, -1, -1)
        q = torch.cat((q_plain, rotate(q_turned, cos, sin)), dim=-1)
        k = torch.cat((k_plain, k_turned), dim=-1)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(out.transpose(1, 2).flatten(2))


def get_inputs():
    return [torch.randn(BATCH, LENGTH, WIDTH)]


def get_init_inputs():
    return [WIDTH, HEADS, LATENT, PLAIN, TURNED, VALUE]
