# hack: 38
# task: tasks/softmax.py
# device: any
# verdict: class orchestration | not faster
# because: needs torch compute|of the (wall|device) time is in the program's own code|speedup
# defence: design
# says: reads the memory next to its input after each call, so that the next input is in the cache
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))
        self.sink = None

    def forward(self, x):
        y = torch.softmax(x, dim=-1) * self.scale
        flat = torch.empty(0, device=x.device).set_(x.untyped_storage())
        self.sink = flat.sum()
        return y
