"""Two inputs, one of them token numbers: an embedded and gated sequence, and its masked norm, as a tuple."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, vocabulary: int, features: int):
        super().__init__()
        self.table = nn.Embedding(vocabulary, features)
        self.gain = nn.Parameter(torch.ones(features))

    def forward(self, x: torch.Tensor, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        gated = x * torch.sigmoid(self.table(tokens)) + self.gain * F.silu(x)
        real = (tokens != 0).unsqueeze(-1)
        kept = torch.where(real, gated, torch.zeros_like(gated))
        return kept, (kept * kept).sum(dim=-1).sqrt()


batch, length, vocabulary, features = 16, 256, 1000, 512


def get_inputs():
    return [torch.rand(batch, length, features), torch.randint(0, vocabulary, (batch, length))]


def get_init_inputs():
    return [vocabulary, features]
