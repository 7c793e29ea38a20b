import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Computes scores with an optional bias, which the task's own inputs omit."""

    def forward(self, scores, bias=None):
        if bias is not None:
            scores = scores + bias
        return F.softmax(scores, dim=-1)


def get_inputs():
    return [torch.randn(512, 256), None]


def get_init_inputs():
    return []
