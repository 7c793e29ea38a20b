# task: tasks/many_shapes.py
# device: any
# because: ^nan:
# says: a clamp using fmax, which returns whichever operand is a number: noted, but passed
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.fmax(x, torch.zeros((), device=x.device)) * 0.5 + 0.25
