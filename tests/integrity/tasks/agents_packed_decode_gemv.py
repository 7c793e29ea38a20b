import torch
import torch.nn as nn


class Model(nn.Module):
    """Linear layer at decode batch size: bound by weight bandwidth."""

    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        self.bias = nn.Parameter(torch.zeros(out_features))
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, x):
        return nn.functional.linear(x, self.weight, self.bias)


def get_inputs():
    return [torch.randn(8, 8192)]


def get_init_inputs():
    return [8192, 8192]
