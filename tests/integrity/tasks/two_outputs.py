import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(size) + 0.5)

    def forward(self, x):
        y = torch.softmax(x, dim=-1) * self.scale
        return y, {"best": y.argmax(dim=-1), "norm": y.square().sum(dim=-1)}


def get_inputs():
    return [torch.rand(256, 1024)]


def get_init_inputs():
    return [1024]
