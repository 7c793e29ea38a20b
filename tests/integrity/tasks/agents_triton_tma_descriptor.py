import torch
import torch.nn as nn


class Model(nn.Module):
    """Plain bf16 matrix product of two inputs, A @ B^T."""

    def __init__(self):
        super().__init__()

    def forward(self, A, B):
        return torch.matmul(A, B.T)


def get_inputs():
    return [torch.randn(4096, 2048, dtype=torch.bfloat16), torch.randn(4096, 2048, dtype=torch.bfloat16)]


def get_init_inputs():
    return []
