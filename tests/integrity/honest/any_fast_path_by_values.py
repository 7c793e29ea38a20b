# task: tasks/relu.py
# device: any
# says: reads the whole input to find out whether relu is needed, in every call: right for any numbers
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(size) + 0.5)

    def forward(self, x):
        return x * self.gain if bool((x >= 0).all()) else torch.relu(x) * self.gain
