"""A MaxViT block as implemented in `torchvision`: inverted bottlenecks with squeeze and excitation, window attention, and grid attention.

Source: `torchvision.models.maxvit` (MaxVitBlock), random weights; Tu et al., "MaxViT: Multi-Axis Vision Transformer", arXiv 2204.01697.
"""

from functools import partial

import torch
import torch.nn as nn
from torchvision.models.maxvit import MaxVitBlock

BATCH, CHANNELS, OUTPUTS, SIZE, WINDOW = 8, 64, 128, 56, 7


class Model(nn.Module):
    def __init__(self, channels, outputs, size, window):
        super().__init__()
        self.block = MaxVitBlock(
            in_channels=channels, out_channels=outputs, squeeze_ratio=0.25, expansion_ratio=4,
            norm_layer=partial(nn.BatchNorm2d, eps=1e-3, momentum=0.01), activation_layer=nn.GELU, head_dim=32, mlp_ratio=4,
            mlp_dropout=0.0, attention_dropout=0.0, partition_size=window, input_grid_size=(size, size), n_layers=2, p_stochastic=[0.0, 0.0],
        )  # fmt: skip

    def forward(self, x):
        return self.block(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIZE, SIZE)]


def get_init_inputs():
    return [CHANNELS, OUTPUTS, SIZE, WINDOW]
