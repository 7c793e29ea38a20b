# task: tasks/branches.py
# device: any
# says: two weights side by side, concatenated in every call from the parameters themselves
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.left = nn.Linear(features, features)
        self.right = nn.Linear(features, features)

    def forward(self, x):
        weight = torch.cat([self.left.weight, self.right.weight])
        bias = torch.cat([self.left.bias, self.right.bias])
        left, right = F.linear(x, weight, bias).chunk(2, dim=-1)
        return torch.relu(left) + torch.tanh(right)
