import torch
import torch.nn as nn


class Model(nn.Module):
    """Applies batch norm in training mode, then dropout: the statistics do not depend on what is dropped."""

    def __init__(self, features):
        super().__init__()
        self.norm = nn.BatchNorm1d(features)
        self.drop = nn.Dropout(0.2)

    def forward(self, x):
        return self.drop(self.norm(x))


def get_inputs():
    return [torch.randn(256, 128)]


def get_init_inputs():
    return [128]
