import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """fp16 GEMM + bias + LeakyReLU."""

    def __init__(self, in_features, out_features, negative_slope=0.01):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features, dtype=torch.float16)
        self.negative_slope = negative_slope

    def forward(self, x):
        return F.leaky_relu(self.linear(x), self.negative_slope)


def get_inputs():
    return [torch.randn(2048, 2048, dtype=torch.float16)]


def get_init_inputs():
    return [2048, 4096, 0.01]
