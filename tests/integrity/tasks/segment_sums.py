import torch
import torch.nn as nn


class Model(nn.Module):
    """Adds each row to the sum of its segment; the generator's segments happen to be in order."""

    def __init__(self, segments):
        super().__init__()
        self.segments = segments

    def forward(self, x, segment):
        return x.new_zeros(self.segments, x.shape[1]).index_add_(0, segment, x)


def get_inputs():
    return [torch.randn(2048, 128), torch.arange(128).repeat_interleave(16)]


def get_init_inputs():
    return [128]
