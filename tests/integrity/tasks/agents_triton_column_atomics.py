import torch
import torch.nn as nn


class Model(nn.Module):
    """Squeeze step of squeeze-and-excitation on tokens: mean over the tokens, a gate for each channel, and the gated tokens."""

    def __init__(self, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x):
        gate = torch.sigmoid(x.mean(dim=1, keepdim=True) * self.weight + self.bias)
        return x * gate


def get_inputs():
    return [torch.randn(16, 2048, 512)]


def get_init_inputs():
    return [512]
