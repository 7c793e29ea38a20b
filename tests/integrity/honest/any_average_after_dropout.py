# task: tasks/average_after_dropout.py
# device: any
# says: updates an average that depends on random numbers with a single operation
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, rows, columns):
        super().__init__()
        self.register_buffer("left", torch.zeros(rows, columns))

    def forward(self, x):
        y = F.dropout(x, 0.2, training=True)
        self.left.lerp_(y, 0.1)
        return y
