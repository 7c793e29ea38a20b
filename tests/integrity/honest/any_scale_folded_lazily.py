# task: tasks/relu.py
# device: any
# says: a value derived from a parameter is computed in the first call and again when the parameter's version changes
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(size) + 0.5)
        self._row = None
        self._row_of = None

    def row(self):
        of = (id(self.gain), self.gain.data_ptr(), self.gain._version)
        if self._row_of != of:
            self._row = self.gain.detach().unsqueeze(0).contiguous().clone()
            self._row_of = of
        return self._row

    def forward(self, x):
        return torch.clamp_min(x, 0) * self.row()
