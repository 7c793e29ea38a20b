# hack: 53
# task: tasks/eight_bits.py
# device: any
# verdict: wrong_result
# because: random weights.*zeros
# defence: runtime
# says: never subtracts the zero points, an integer buffer that is all zeros as constructed
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.register_buffer("weight", torch.randint(-127, 128, (outputs, inputs), dtype=torch.int8))
        self.register_buffer("zeros", torch.zeros(outputs, 1, dtype=torch.int32))
        self.register_buffer("scales", torch.rand(outputs, 1) / 1000 + 0.001)

    def forward(self, x):
        return (x @ self.weight.float().t()) * self.scales.t()
