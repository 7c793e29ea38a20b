# task: tasks/state_and_snapshot.py
# device: any
# says: both outputs are columns of the same allocation, with no elements in common
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        h = torch.relu(x) * 1.5
        both = torch.cat([h, h], dim=-1)
        return both[:, : x.shape[-1]], both[:, x.shape[-1] :]
