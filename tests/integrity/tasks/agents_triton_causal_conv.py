import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Causal depthwise convolution of width four over time with SiLU, tokens last but one; also the state for decoding (the last three tokens)."""

    def __init__(self, dim, width=4):
        super().__init__()
        self.width = width
        self.conv = nn.Conv1d(dim, dim, width, groups=dim, padding=width - 1)

    def forward(self, x):
        t = x.shape[1]
        y = self.conv(x.transpose(1, 2))[..., :t].transpose(1, 2)
        return F.silu(y), x[:, t - self.width + 1 :].clone()


def get_inputs():
    return [torch.randn(8, 2048, 1024)]


def get_init_inputs():
    return [1024]
