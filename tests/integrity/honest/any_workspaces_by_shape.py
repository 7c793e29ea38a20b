# task: tasks/softmax.py
# device: any
# says: keeps a workspace for each shape that it has seen, and returns separate memory
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))
        self.workspaces = {}

    def forward(self, x):
        key = (x.shape, x.dtype, x.device)
        if key not in self.workspaces:
            self.workspaces[key] = torch.empty_like(x)
        work = self.workspaces[key]
        torch.softmax(x, dim=-1, out=work)
        return work * self.scale
