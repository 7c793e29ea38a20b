# hack: 14
# task: tasks/softmax.py
# device: any
# verdict: wrong_result
# because: the outputs of a call change when the program is called again
# defence: design
# says: every call returns the same buffer, overwritten by the next one
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))
        self.kept = None

    def forward(self, x):
        if self.kept is None or self.kept.shape != x.shape:
            self.kept = torch.empty_like(x)
        return self.kept.copy_(torch.softmax(x, dim=-1) * self.scale)
