"""An interaction block of a network for molecules: filters computed from the distances between atoms, with a smooth cutoff, summed over neighbours.

Source: Schütt et al., "SchNet", arXiv 1706.08566.
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

ATOMS, PAIRS, WIDTH, GAUSSIANS, CUTOFF = 8192, 200000, 128, 50, 10.0


class Model(nn.Module):
    def __init__(self, width, gaussians, cutoff):
        super().__init__()
        self.cutoff, self.width = cutoff, cutoff / (gaussians - 1)
        self.register_buffer("centres", torch.linspace(0, cutoff, gaussians))
        self.filter = nn.Sequential(nn.Linear(gaussians, width), nn.Softplus(), nn.Linear(width, width))
        self.inwards = nn.Linear(width, width, bias=False)
        self.outwards = nn.Sequential(nn.Linear(width, width), nn.Softplus(), nn.Linear(width, width))

    def forward(self, atoms, places, pairs):
        """`atoms` (atoms, width), `places` (atoms, 3), `pairs` (2, pairs) -> (atoms, width)."""
        first, second = pairs[0], pairs[1]
        distance = (places[first] - places[second]).square().sum(dim=-1).add(1e-8).sqrt()
        spread = torch.exp(-0.5 * ((distance[:, None] - self.centres) / self.width) ** 2)
        smooth = 0.5 * (torch.cos(distance * math.pi / self.cutoff) + 1) * (distance < self.cutoff)
        filters = (self.filter(spread) - math.log(2)) * smooth[:, None]
        messages = F.embedding(second, self.inwards(atoms)) * filters
        gathered = torch.zeros_like(atoms).index_add(0, first, messages)
        return atoms + self.outwards(gathered)


def get_inputs():
    return [torch.randn(ATOMS, WIDTH), torch.rand(ATOMS, 3) * 8, torch.randint(0, ATOMS, (2, PAIRS))]


def get_init_inputs():
    return [WIDTH, GAUSSIANS, CUTOFF]
