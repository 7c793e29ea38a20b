# task: tasks/optional_bias.py
# device: any
# says: adds the optional bias if there is one, in place on a copy
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, scores, bias=None):
        shifted = scores - scores.amax(dim=-1, keepdim=True) if bias is None else scores.clone().add_(bias)
        return torch.softmax(shifted, dim=-1)
