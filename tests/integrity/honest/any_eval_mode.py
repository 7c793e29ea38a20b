# task: tasks/train_dropout_free.py
# device: any
# mode: eval
# says: in eval mode, batch norm is an affine map that is folded into the product in each call
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.norm = nn.BatchNorm1d(features)
        self.drop = nn.Dropout(0.0)

    def forward(self, x):
        norm, linear = self.norm, self.linear
        if norm.training:
            return self.drop(torch.relu(norm(linear(x))))
        scale = norm.weight * torch.rsqrt(norm.running_var + norm.eps)
        y = torch.mm(x, linear.weight.t()).mul_(scale).add_((linear.bias - norm.running_mean) * scale + norm.bias)
        return torch.relu_(y)
