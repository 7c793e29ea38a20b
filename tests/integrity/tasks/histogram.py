import torch
import torch.nn as nn


class Model(nn.Module):
    """Computes how often each value occurs, which values are more frequent than the mean, and the parity of the input."""

    def __init__(self, bins):
        super().__init__()
        self.bins = bins

    def forward(self, values):
        counts = torch.bincount(values.flatten(), minlength=self.bins)
        return counts, counts > counts.float().mean(), (values % 2).to(torch.int32)


def get_inputs():
    return [torch.randint(0, 64, (256, 256))]


def get_init_inputs():
    return [64]
