import torch
import torch.nn as nn


class Model(nn.Module):
    """Centres its input; a running mean moves by a millionth of the difference in each call."""

    def __init__(self, features):
        super().__init__()
        self.register_buffer("average", torch.ones(features))

    def forward(self, x):
        mean = x.mean(dim=0)
        self.average.lerp_(mean, 1e-6)
        return x - mean


def get_inputs():
    return [torch.randn(2048, 512)]


def get_init_inputs():
    return [512]
