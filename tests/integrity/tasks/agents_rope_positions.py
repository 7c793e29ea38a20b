import torch
import torch.nn as nn


class Model(nn.Module):
    """Rotary position embedding (rotate-half) applied to query and key."""

    def __init__(self, head_dim: int, base: float = 10000.0):
        super().__init__()
        inv_freq = 1.0 / (base ** (torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim))
        self.register_buffer("inv_freq", inv_freq, persistent=False)

    @staticmethod
    def rotate_half(x):
        x1, x2 = x.chunk(2, dim=-1)
        return torch.cat((-x2, x1), dim=-1)

    def forward(self, q, k, position_ids):
        freqs = position_ids[:, None, :, None].float() * self.inv_freq
        emb = torch.cat((freqs, freqs), dim=-1)
        cos, sin = emb.cos(), emb.sin()
        return q * cos + self.rotate_half(q) * sin, k * cos + self.rotate_half(k) * sin


def get_inputs():
    B, HQ, HK, S, D = 4, 32, 8, 2048, 128
    pos = torch.arange(S).unsqueeze(0).expand(B, S).contiguous()
    return [torch.randn(B, HQ, S, D), torch.randn(B, HK, S, D), pos]


def get_init_inputs():
    return [128]
