import torch
import torch.nn as nn


class Model(nn.Module):
    """Computes the mean of the tokens selected by an integer mask; in the task's own inputs, no token is padding."""

    def forward(self, x, mask):
        weight = mask.to(x.dtype).unsqueeze(-1)
        return (x * weight).sum(dim=1) / weight.sum(dim=1).clamp_min(1.0)


def get_inputs():
    return [torch.randn(16, 128, 64), torch.ones(16, 128, dtype=torch.int64)]


def get_init_inputs():
    return []
