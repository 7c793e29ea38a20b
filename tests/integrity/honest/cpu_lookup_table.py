# task: tasks/histogram.py
# device: any
# says: parity from a lookup table, counts from sorting
import torch
import torch.nn as nn

PARITY = torch.tensor([0, 1] * 32, dtype=torch.int32)


class ModelNew(nn.Module):
    def __init__(self, bins):
        super().__init__()
        self.bins = bins
        self.register_buffer("parity", PARITY[:bins].clone(), persistent=False)
        self.register_buffer("edges", torch.arange(bins + 1), persistent=False)

    def forward(self, values):
        ordered = values.flatten().sort().values
        counts = torch.searchsorted(ordered, self.edges).diff()
        return counts, counts * self.bins > values.numel(), self.parity[values]
