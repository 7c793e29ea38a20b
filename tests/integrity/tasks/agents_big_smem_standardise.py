import torch
import torch.nn as nn


class Model(nn.Module):
    """Standardises long rows: subtracts the mean and divides by the standard deviation (two passes over the data)."""

    def __init__(self, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        mean = x.mean(dim=1, keepdim=True)
        centred = x - mean
        std = centred.pow(2).mean(dim=1, keepdim=True).add(self.eps).sqrt()
        return centred / std


def get_inputs():
    return [torch.randn(1024, 49152)]


def get_init_inputs():
    return []
