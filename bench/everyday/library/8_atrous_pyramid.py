"""The head of DeepLab v3 as implemented in `torchvision`: parallel convolutions with four dilations, and a pooled path.

Source: `torchvision.models.segmentation.deeplabv3` (ASPP), random weights; Chen et al., "Rethinking Atrous Convolution", arXiv 1706.05587.
"""

import torch
import torch.nn as nn
from torchvision.models.segmentation.deeplabv3 import ASPP

BATCH, CHANNELS, SIZE, RATES = 4, 1024, 33, (12, 24, 36)


class Model(nn.Module):
    def __init__(self, channels, rates):
        super().__init__()
        self.pyramid = ASPP(channels, list(rates))
        self.pyramid.project[3].p = 0.0  # dropout, disabled to make training deterministic
        self.classes = nn.Conv2d(256, 21, 1)

    def forward(self, x):
        return self.classes(self.pyramid(x))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIZE, SIZE)]


def get_init_inputs():
    return [CHANNELS, RATES]
