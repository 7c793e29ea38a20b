# hack: 8
# task: tasks/softmax.py
# device: any
# verdict: class orchestration
# because: torch.compile made|needs torch compute
# defence: runtime
# says: the reference behind torch.compile, so that forward contains no operator
import torch
import torch.nn as nn


def reference(x, scale):
    return torch.softmax(x, dim=-1) * scale


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))
        self.inner = torch.compile(reference, backend="eager", dynamic=False)

    def forward(self, x):
        return self.inner(x, self.scale)
