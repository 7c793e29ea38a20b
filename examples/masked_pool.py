"""Mean and maximum over the valid positions of padded sequences: two inputs, one of integers, and a tuple of outputs."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features: int):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(features))
        self.bias = nn.Parameter(torch.rand(features))

    def forward(self, x: torch.Tensor, lengths: torch.Tensor):
        position = torch.arange(x.size(2), device=x.device)
        valid = position[None, None, :] < lengths[:, None, None]
        activated = torch.sigmoid(x * self.weight[None, :, None] + self.bias[None, :, None])
        mean = torch.where(valid, activated, 0.0).sum(dim=2) / lengths[:, None]
        highest = activated.masked_fill(~valid, float("-inf")).amax(dim=2)
        return mean, highest


def get_inputs():
    return [torch.rand(64, 64, 1024), torch.randint(1, 1025, (64,))]


def get_init_inputs():
    return [64]
