"""The convolution module of a Conformer, preceded by a half-step feed-forward layer, over ten seconds of speech.

Source: Gulati et al., "Conformer", arXiv 2005.08100, figures 2 and 4.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH, LENGTH, WIDTH, KERNEL = 16, 500, 512, 31


class Model(nn.Module):
    def __init__(self, width, kernel):
        super().__init__()
        self.ff_norm, self.ff_in, self.ff_out = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm = nn.LayerNorm(width)
        self.pointwise_in = nn.Conv1d(width, 2 * width, 1)
        self.depthwise = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)
        self.batch_norm = nn.BatchNorm1d(width)
        self.pointwise_out = nn.Conv1d(width, width, 1)

    def forward(self, x):
        x = x + 0.5 * self.ff_out(F.silu(self.ff_in(self.ff_norm(x))))
        y = self.norm(x).transpose(1, 2)
        y = F.glu(self.pointwise_in(y), dim=1)
        y = F.silu(self.batch_norm(self.depthwise(y)))
        return x + self.pointwise_out(y).transpose(1, 2)


def get_inputs():
    return [torch.randn(BATCH, LENGTH, WIDTH)]


def get_init_inputs():
    return [WIDTH, KERNEL]
