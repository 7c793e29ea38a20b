import torch
import torch.nn as nn


class Model(nn.Module):
    """A tall reduction: few rows, many inputs, then bias and ReLU."""

    def __init__(self, in_features, out_features):
        super().__init__()
        self.fc = nn.Linear(in_features, out_features)

    def forward(self, x):
        return torch.relu(self.fc(x))


def get_inputs():
    return [torch.randn(64, 16384)]


def get_init_inputs():
    return [16384, 512]
