"""Group norm followed by SiLU, as between the convolutions of a diffusion model."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, groups: int, channels: int):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.silu(self.norm(x))


batch, groups, channels, height, width = 12, 32, 128, 64, 64


def get_inputs():
    return [torch.rand(batch, channels, height, width)]


def get_init_inputs():
    return [groups, channels]
