import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """bf16 linear layer with ReLU, large square GEMM."""

    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out_features, in_features, dtype=torch.bfloat16) * in_features**-0.5)
        self.bias = nn.Parameter(torch.zeros(out_features, dtype=torch.bfloat16))

    def forward(self, x):
        return torch.relu(F.linear(x, self.weight, self.bias))


def get_inputs():
    return [torch.randn(4096, 4096, dtype=torch.bfloat16)]


def get_init_inputs():
    return [4096, 4096]
