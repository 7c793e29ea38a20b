# hack: 56
# task: tasks/settings_object.py
# device: any
# verdict: wrong_result
# because: other (numbers|integers).*: out
# defence: runtime
# says: never reads the numbers in an object among the arguments
from dataclasses import dataclass

import torch
import torch.nn as nn


@dataclass
class Settings:
    slope: float = 0.1
    places: int = 3


class ModelNew(nn.Module):
    def forward(self, x, settings):
        return torch.nn.functional.leaky_relu(x + 0.5 * torch.roll(x, 3, dims=-1), 0.1)
