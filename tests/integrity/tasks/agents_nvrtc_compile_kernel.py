import torch
import torch.nn as nn


class Model(nn.Module):
    """Minimum over one dimension."""

    def __init__(self, dim: int):
        super().__init__()
        self.dim = dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.min(x, dim=self.dim)[0]


def get_inputs():
    return [torch.rand(128, 512, 512)]


def get_init_inputs():
    return [1]
