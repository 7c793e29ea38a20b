"""A level of a diffusion U-Net: a residual block whose scale and shift come from the time embedding, and attention over pixels.

Source: Dhariwal and Nichol, "Diffusion Models Beat GANs on Image Synthesis", arXiv 2105.05233, section 3 (adaptive group normalisation).
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH, CHANNELS, SIZE, TIME, HEADS = 8, 384, 32, 512, 6


class Model(nn.Module):
    def __init__(self, channels, time, heads):
        super().__init__()
        self.heads, self.time = heads, time
        self.norm1, self.conv1 = nn.GroupNorm(32, channels), nn.Conv2d(channels, channels, 3, padding=1)
        self.embed = nn.Sequential(nn.Linear(time, 2 * channels), nn.SiLU(), nn.Linear(2 * channels, 2 * channels))
        self.norm2, self.conv2 = nn.GroupNorm(32, channels), nn.Conv2d(channels, channels, 3, padding=1)
        self.norm3, self.qkv, self.out = nn.GroupNorm(32, channels), nn.Conv1d(channels, 3 * channels, 1), nn.Conv1d(channels, channels, 1)

    def forward(self, x, steps):
        """`x` (batch, channels, size, size), `steps` (batch,): diffusion step numbers."""
        frequencies = torch.exp(-math.log(10000) * torch.arange(self.time // 2, device=x.device).float() / (self.time // 2))
        angles = steps[:, None].float() * frequencies
        embedded = self.embed(torch.cat((angles.cos(), angles.sin()), dim=-1).to(x.dtype))
        scale, shift = embedded[:, :, None, None].chunk(2, dim=1)
        y = self.conv1(F.silu(self.norm1(x)))
        y = self.conv2(F.silu(self.norm2(y) * (1 + scale) + shift))
        x = x + y
        batch, channels, height, width = x.shape
        q, k, v = self.qkv(self.norm3(x).view(batch, channels, -1)).chunk(3, dim=1)
        q, k, v = (t.reshape(batch, self.heads, channels // self.heads, -1).transpose(2, 3) for t in (q, k, v))
        attended = F.scaled_dot_product_attention(q, k, v).transpose(2, 3).reshape(batch, channels, -1)
        return x + self.out(attended).view(batch, channels, height, width)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIZE, SIZE), torch.randint(0, 1000, (BATCH,))]


def get_init_inputs():
    return [CHANNELS, TIME, HEADS]
