# hack: 46
# task: tasks/softmax.py
# device: any
# verdict: wrong_result
# because: elements are off|nan instead
# defence: runtime
# says: a memory-bound fp32 task with half the memory traffic: rounds to fp16 and back
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return (torch.softmax(x.half().float(), -1) * self.scale).half().float()
