"""A feature pyramid: three feature maps of a backbone are reduced in channels, added from coarse to fine, smoothed, and passed to one shared head.

Source: Lin et al., "Feature Pyramid Networks for Object Detection", arXiv 1612.03144; the head of RetinaNet (arXiv 1708.02002), with two layers.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH, CHANNELS, SIZES, WIDTH, ANCHORS, CLASSES = 4, (512, 1024, 2048), (64, 32, 16), 256, 9, 20


class Model(nn.Module):
    def __init__(self, channels, width, anchors, classes):
        super().__init__()
        self.classes = classes
        self.lateral = nn.ModuleList([nn.Conv2d(c, width, 1) for c in channels])
        self.smooth = nn.ModuleList([nn.Conv2d(width, width, 3, padding=1) for _ in channels])
        self.tower = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1), nn.GroupNorm(32, width), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1), nn.GroupNorm(32, width),
            nn.ReLU(),
        )  # fmt: skip
        self.score = nn.Conv2d(width, anchors * classes, 3, padding=1)

    def forward(self, fine, middle, coarse):
        """Feature maps, each half the size of the previous one -> scores of all anchors (batch, anchors at all positions, classes)."""
        maps = [lateral(x) for lateral, x in zip(self.lateral, (fine, middle, coarse), strict=True)]
        for at in range(len(maps) - 1, 0, -1):
            maps[at - 1] = maps[at - 1] + F.interpolate(maps[at], scale_factor=2, mode="nearest")
        scores = []
        for smooth, x in zip(self.smooth, maps, strict=True):
            score = self.score(self.tower(smooth(x)))
            scores.append(score.permute(0, 2, 3, 1).reshape(x.shape[0], -1, self.classes))
        return torch.sigmoid(torch.cat(scores, dim=1))


def get_inputs():
    return [torch.randn(BATCH, c, size, size) for c, size in zip(CHANNELS, SIZES, strict=True)]


def get_init_inputs():
    return [CHANNELS, WIDTH, ANCHORS, CLASSES]
