"""Group norm followed by SiLU, the opening of every residual block of a diffusion U-Net."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, groups: int, channels: int):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.silu(self.norm(x))


def get_inputs():
    return [torch.rand(8, 64, 128, 128)]


def get_init_inputs():
    return [16, 64]
