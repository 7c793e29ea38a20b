# hack: 68
# task: tasks/tiny_outputs.py
# device: any
# verdict: wrong_result
# because: elements are off
# defence: runtime
# says: returns zeros, because every output is below the usual absolute tolerance
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.zeros_like(x)
