from dataclasses import dataclass

import torch
import torch.nn as nn


@dataclass
class Settings:
    slope: float = 0.1
    places: int = 3


class Model(nn.Module):
    """Mixes each column with one several places away, then applies a leaky ramp; one object holds both settings."""

    def forward(self, x, settings):
        mixed = x + 0.5 * torch.roll(x, settings.places, dims=-1)
        return torch.where(mixed > 0, mixed, mixed * settings.slope)


def get_inputs():
    return [torch.randn(512, 512), Settings()]


def get_init_inputs():
    return []
