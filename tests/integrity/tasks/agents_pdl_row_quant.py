import torch
import torch.nn as nn


class Model(nn.Module):
    """SwiGLU gate followed by scaling each row to a largest magnitude of one; returns the scaled rows and the scales."""

    def __init__(self, floor=1e-6):
        super().__init__()
        self.floor = floor

    def forward(self, x):
        a, b = x.chunk(2, dim=-1)
        h = torch.nn.functional.silu(a) * b
        scale = h.abs().amax(dim=-1, keepdim=True).clamp(min=self.floor)
        return h / scale, scale


def get_inputs():
    return [torch.randn(4096, 8192)]


def get_init_inputs():
    return []
