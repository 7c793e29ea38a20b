# task: tasks/kept_features.py
# device: any
# says: multiplies by the boolean buffer, and derives an additive one from it when a state dict is loaded
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features, features) / features**0.5)
        self.register_buffer("keep", torch.ones(features, dtype=torch.bool))
        self.fold()
        self.register_load_state_dict_post_hook(lambda module, _: module.fold())

    def fold(self):
        self.factor = self.keep.to(self.weight.dtype)

    def forward(self, x):
        return torch.relu((x @ self.weight) * self.factor) + x
