# task: tasks/slope_and_count.py
# device: any
# says: counts its calls as the task does and reads the slope
import torch.nn as nn
from torch.nn.functional import leaky_relu


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x, slope):
        self.calls += 1
        return leaky_relu(x, slope).add_(1.0 / self.calls)
