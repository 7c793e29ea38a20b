"""Ranking by a user's history: a small network weighs each of 100 past items against the candidate. The sum is masked and its weights are not
normalised.

Source: Zhou et al., "Deep Interest Network for Click-Through Rate Prediction", arXiv 1706.06978 (the activation unit and Dice).
"""

import torch
import torch.nn as nn

BATCH, LENGTH, ITEMS, WIDTH = 1024, 100, 200000, 64


class Dice(nn.Module):
    """Interpolates between two slopes, gated by the batch-normalised value."""

    def __init__(self, width):
        super().__init__()
        self.norm, self.alpha = nn.BatchNorm1d(width, affine=False), nn.Parameter(torch.zeros(width) + 0.1)

    def forward(self, x):
        gate = torch.sigmoid(self.norm(x.reshape(-1, x.shape[-1])).view(x.shape))
        return gate * x + (1 - gate) * self.alpha * x


class Model(nn.Module):
    def __init__(self, items, width):
        super().__init__()
        self.items = nn.Embedding(items, width, padding_idx=0)
        self.weigh = nn.Sequential(nn.Linear(4 * width, 80), Dice(80), nn.Linear(80, 40), Dice(40), nn.Linear(40, 1))
        self.head = nn.Sequential(nn.Linear(3 * width, 200), Dice(200), nn.Linear(200, 1))

    def forward(self, candidate, history):
        """`candidate` (batch,), `history` (batch, length), padded with 0 -> (batch,)."""
        wanted, past = self.items(candidate), self.items(history)
        beside = wanted[:, None].expand_as(past)
        weights = self.weigh(torch.cat((beside, past, beside - past, beside * past), dim=-1))
        interest = (weights * past * (history != 0)[..., None]).sum(dim=1)
        return torch.sigmoid(self.head(torch.cat((wanted, interest, wanted * interest), dim=-1)))[:, 0]


def get_inputs():
    history = torch.randint(1, ITEMS, (BATCH, LENGTH))
    lengths = torch.randint(10, LENGTH + 1, (BATCH, 1))
    return [torch.randint(1, ITEMS, (BATCH,)), history * (torch.arange(LENGTH) < lengths)]


def get_init_inputs():
    return [ITEMS, WIDTH]
