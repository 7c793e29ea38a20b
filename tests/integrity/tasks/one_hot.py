import torch
import torch.nn as nn


class Model(nn.Module):
    """A product for which the generator gives a left operand with a single one in each row."""

    def __init__(self, features):
        super().__init__()
        self.table = nn.Parameter(torch.randn(features, 256))

    def forward(self, x):
        return x @ self.table


def get_inputs():
    x = torch.zeros(1024, 512)
    x[torch.arange(1024), torch.randint(0, 512, (1024,))] = 1.0
    return [x]


def get_init_inputs():
    return [512]
