# task: tasks/first_largest.py
# device: any
# says: finds the first of several equal maxima as the lowest column that contains the maximum
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        places = torch.arange(x.shape[-1], device=x.device)
        return torch.where(x == x.amax(dim=-1, keepdim=True), places, x.shape[-1]).amin(dim=-1)
