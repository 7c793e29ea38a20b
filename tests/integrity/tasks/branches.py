import torch
import torch.nn as nn


class Model(nn.Module):
    """Two branches that do not depend on each other, joined at the end."""

    def __init__(self, features):
        super().__init__()
        self.left = nn.Linear(features, features)
        self.right = nn.Linear(features, features)

    def forward(self, x):
        return torch.relu(self.left(x)) + torch.tanh(self.right(x))


def get_inputs():
    return [torch.randn(256, 384)]


def get_init_inputs():
    return [384]
