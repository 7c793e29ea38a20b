"""Layer norm followed by the exact GELU, as at the entrance of a transformer's feed-forward part."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, features: int):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(self.norm(x))


batch, tokens, features = 8, 512, 1024


def get_inputs():
    return [torch.rand(batch, tokens, features)]


def get_init_inputs():
    return [features]
