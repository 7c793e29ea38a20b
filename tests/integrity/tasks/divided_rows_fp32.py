import torch
import torch.nn as nn


class Model(nn.Module):
    """A linear layer for fp32 only, because it inspects bits; rows are divided by the cube of their first number, which may be near zero."""

    def __init__(self, features, out):
        super().__init__()
        self.linear = nn.Linear(features, out)

    def forward(self, x):
        negative = x.view(torch.int32).view(x.shape) < 0
        return self.linear(torch.where(negative, x, x.abs())) / (x[:, :1] ** 3)


def get_inputs():
    return [torch.randn(512, 256)]


def get_init_inputs():
    return [256, 128]
