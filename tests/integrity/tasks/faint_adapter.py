import torch
import torch.nn as nn


class Model(nn.Module):
    """A cheap path, and a branch whose gate is drawn so small that its effect is not yet visible."""

    def __init__(self, features, hidden):
        super().__init__()
        self.up = nn.Linear(features, hidden)
        self.down = nn.Linear(hidden, features)
        self.gate = nn.Parameter(1e-9 * torch.randn(features))

    def forward(self, x):
        return torch.tanh(x) + self.gate * self.down(torch.relu(self.up(x)))


def get_inputs():
    return [torch.randn(256, 256)]


def get_init_inputs():
    return [256, 512]
