"""Multi-scale deformable attention: each query samples four points in each of four feature maps, at locations that it computes.

Source: Zhu et al., "Deformable DETR", arXiv 2010.04159, section 4.1.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH, QUERIES, WIDTH, HEADS, POINTS = 4, 900, 256, 8, 4
SIZES = ((64, 64), (32, 32), (16, 16), (8, 8))


class Model(nn.Module):
    def __init__(self, width, heads, points, sizes):
        super().__init__()
        self.heads, self.points, self.sizes = heads, points, sizes
        self.offsets = nn.Linear(width, heads * len(sizes) * points * 2)
        self.weights = nn.Linear(width, heads * len(sizes) * points)
        self.value, self.out = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, query, reference, features):
        """`query` (batch, queries, width), `reference` in (0, 1) (batch, queries, 2), `features` (batch, pixels of all maps, width)."""
        batch, queries, width = query.shape
        levels = len(self.sizes)
        value = self.value(features).view(batch, -1, self.heads, width // self.heads)
        offsets = self.offsets(query).view(batch, queries, self.heads, levels, self.points, 2)
        weights = torch.softmax(self.weights(query).view(batch, queries, self.heads, levels * self.points), dim=-1)
        scale = torch.tensor([[w, h] for h, w in self.sizes], dtype=query.dtype, device=query.device)
        places = 2 * (reference[:, :, None, None, None] + offsets / scale[None, None, None, :, None]) - 1
        sampled = []
        for level, (one, (h, w)) in enumerate(zip(value.split([h * w for h, w in self.sizes], dim=1), self.sizes, strict=True)):
            image = one.permute(0, 2, 3, 1).reshape(batch * self.heads, -1, h, w)
            grid = places[:, :, :, level].transpose(1, 2).flatten(0, 1)
            sampled.append(F.grid_sample(image, grid, mode="bilinear", padding_mode="zeros", align_corners=False))
        sampled = torch.stack(sampled, dim=-2).flatten(-2)  # (batch * heads, features, queries, levels * points)
        weights = weights.transpose(1, 2).reshape(batch * self.heads, 1, queries, -1)
        return self.out((sampled * weights).sum(-1).view(batch, width, queries).transpose(1, 2))


def get_inputs():
    pixels = sum(h * w for h, w in SIZES)
    return [torch.randn(BATCH, QUERIES, WIDTH), torch.rand(BATCH, QUERIES, 2), torch.randn(BATCH, pixels, WIDTH)]


def get_init_inputs():
    return [WIDTH, HEADS, POINTS, SIZES]
