# hack: 56
# task: tasks/slope_and_count.py
# device: any
# verdict: wrong_result
# because: other numbers: out
# defence: runtime
# says: never reads a number among the arguments of a task that counts its calls in a plain attribute
import torch.nn as nn
from torch.nn.functional import leaky_relu


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x, slope):
        self.calls += 1
        return leaky_relu(x, 0.1).add_(1.0 / self.calls)
