import torch
import torch.nn as nn


class Model(nn.Module):
    """Computes a softmax of scores under a padding mask; in the example, no position is padded."""

    def forward(self, scores, keep):
        return torch.softmax(scores.masked_fill(~keep, float("-inf")), dim=-1)


def get_inputs():
    return [torch.randn(128, 256), torch.ones(128, 256, dtype=torch.bool)]


def get_init_inputs():
    return []
