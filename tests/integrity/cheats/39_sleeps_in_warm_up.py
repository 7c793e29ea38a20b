# hack: 39
# task: tasks/softmax.py
# device: any
# verdict: class orchestration | inconclusive
# because: needs torch compute|of the (wall|device) time is in the program's own code|too wide
# defence: design
# says: sleeps in its first calls, so that a benchmark's adaptive iteration counts become small
import time

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls <= 12:
            time.sleep(0.02)
        return torch.softmax(x, dim=-1) * self.scale
