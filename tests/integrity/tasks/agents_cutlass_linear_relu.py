import torch
import torch.nn as nn


class Model(nn.Module):
    """Linear + ReLU in fp16."""

    def __init__(self, in_features, out_features):
        super().__init__()
        self.fc = nn.Linear(in_features, out_features, dtype=torch.float16)

    def forward(self, x):
        return torch.relu(self.fc(x))


def get_inputs():
    return [torch.randn(2048, 4096, dtype=torch.float16)]


def get_init_inputs():
    return [4096, 4096]
