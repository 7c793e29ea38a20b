"""A block of a diffusion transformer: layer norms whose scale, shift and gate come from the condition, attention with query-key norm, and a GELU
network.

Source: Peebles and Xie, "Scalable Diffusion Models with Transformers", arXiv 2212.09748 (adaLN-Zero); query-key norm from Esser et al., arXiv
2403.03206.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH, TOKENS, WIDTH, HEADS = 8, 256, 1152, 16


def modulate(x, shift, scale):
    return x * (1 + scale[:, None]) + shift[:, None]


class Model(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = (nn.LayerNorm(width, elementwise_affine=False, eps=1e-6) for _ in range(2))
        self.condition = nn.Linear(width, 6 * width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.q_norm, self.k_norm = nn.RMSNorm(width // heads, eps=1e-6), nn.RMSNorm(width // heads, eps=1e-6)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, condition):
        batch, tokens, width = x.shape
        shift1, scale1, gate1, shift2, scale2, gate2 = self.condition(F.silu(condition)).chunk(6, dim=-1)
        q, k, v = self.qkv(modulate(self.norm1(x), shift1, scale1)).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(self.q_norm(q), self.k_norm(k), v).transpose(1, 2).reshape(batch, tokens, width)
        x = x + gate1[:, None] * self.out(attended)
        y = self.narrow(F.gelu(self.wide(modulate(self.norm2(x), shift2, scale2)), approximate="tanh"))
        return x + gate2[:, None] * y


def get_inputs():
    return [torch.randn(BATCH, TOKENS, WIDTH), torch.randn(BATCH, WIDTH)]


def get_init_inputs():
    return [WIDTH, HEADS]
