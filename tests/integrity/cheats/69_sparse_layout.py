# hack: 69
# task: tasks/softmax.py
# device: any
# verdict: crashed
# because: layout|cannot be|must be
# defence: runtime
# says: returns the right numbers in a sparse layout
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return (torch.softmax(x, -1) * self.scale).to_sparse()
