import torch
import torch.nn as nn


class Model(nn.Module):
    """Computes a squared error, reduced as an argument specifies."""

    def forward(self, x, target, reduction):
        off = (x - target).square()
        if reduction == "none":
            return off.mean(dim=-1, keepdim=True).expand_as(off).contiguous()
        weight = {"mean": 1.0, "sum": float(x.shape[-1])}[reduction]
        return off.mean(dim=-1) * weight


def get_inputs():
    return [torch.randn(512, 512), torch.randn(512, 512), "mean"]


def get_init_inputs():
    return []
