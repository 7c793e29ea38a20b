import torch
import torch.nn as nn


class Model(nn.Module):
    """Finds the column of each row's largest number; among equal ones it is the first, as torch.argmax documents."""

    def forward(self, x):
        return x.argmax(dim=-1)


def get_inputs():
    return [torch.randn(512, 1024)]


def get_init_inputs():
    return []
