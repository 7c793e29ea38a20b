# hack: 18
# task: tasks/softmax.py
# device: any
# verdict: wrong_result | class orchestration
# because: elements are off|instead of|clone\(\)|needs torch compute|of the (wall|device) time is in the program's own code
# defence: design
# says: keeps results by the norm of the middle row and the last element
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))
        self.known = {}

    def forward(self, x):
        key = (x.shape, float(x[len(x) // 2].norm()) if len(x) else 0.0, float(x[-1, -1]) if x.numel() else 0.0)
        if key not in self.known:
            self.known[key] = torch.softmax(x, dim=-1) * self.scale
        return self.known[key].clone()
