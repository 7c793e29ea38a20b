import torch
import torch.nn as nn


class Model(nn.Module):
    """Routes each token to its two best experts, and returns their numbers and the weights of their results."""

    def forward(self, scores):
        best, experts = scores.topk(2, dim=-1)
        return torch.softmax(best, dim=-1), experts


def get_inputs():
    return [torch.randn(1024, 64)]


def get_init_inputs():
    return []
