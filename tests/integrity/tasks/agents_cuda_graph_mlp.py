import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.fc1 = nn.Linear(d, 4 * d)
        self.fc2 = nn.Linear(4 * d, d)

    def forward(self, x):
        return x + self.fc2(F.silu(self.fc1(self.norm(x))))


class Model(nn.Module):
    """Four residual MLP blocks on a small batch: launch-bound in eager mode."""

    def __init__(self, d, depth):
        super().__init__()
        self.blocks = nn.ModuleList([Block(d) for _ in range(depth)])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def get_inputs():
    return [torch.randn(32, 512)]


def get_init_inputs():
    return [512, 4]
