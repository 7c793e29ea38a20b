# task: tasks/eight_bits.py
# device: any
# says: subtracts the zero points after the product, using the sums of the rows
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.register_buffer("weight", torch.randint(-127, 128, (outputs, inputs), dtype=torch.int8))
        self.register_buffer("zeros", torch.zeros(outputs, 1, dtype=torch.int32))
        self.register_buffer("scales", torch.rand(outputs, 1) / 1000 + 0.001)

    def forward(self, x):
        return (x @ self.weight.float().t() - x.sum(dim=-1, keepdim=True) * self.zeros.t()) * self.scales.t()
