import torch
import torch.nn as nn


class Model(nn.Module):
    """Rotary embedding of queries and keys (half-split), with one table of angles, fp16."""

    def __init__(self, head_dim, base=10000.0):
        super().__init__()
        self.register_buffer("inv_freq", 1.0 / base ** (torch.arange(0, head_dim, 2).float() / head_dim))

    def forward(self, q, k):
        t = torch.arange(q.shape[2], device=q.device, dtype=torch.float32)
        angle = torch.outer(t, self.inv_freq)
        cos, sin = torch.cat([angle, angle], -1).cos().to(q.dtype), torch.cat([angle, angle], -1).sin().to(q.dtype)

        def rotate(v):
            a, b = v.chunk(2, dim=-1)
            return v * cos + torch.cat([-b, a], dim=-1) * sin

        return rotate(q), rotate(k)


def get_inputs():
    return [torch.randn(4, 32, 1024, 128, dtype=torch.float16), torch.randn(4, 8, 1024, 128, dtype=torch.float16)]


def get_init_inputs():
    return [128]
