"""A linear layer of a decode step whose weights are packed eight to an int32, with a scale and a zero point per group of 128.

Source: Lin et al., "AWQ", arXiv 2306.00978; packing as in the public GPTQ checkpoints (Frantar et al., arXiv 2210.17323).
"""

import torch
import torch.nn as nn

TOKENS, INPUTS, OUTPUTS, GROUP = 16, 4096, 8192, 128


class Model(nn.Module):
    def __init__(self, inputs, outputs, group):
        super().__init__()
        self.inputs, self.outputs, self.group = inputs, outputs, group
        self.register_buffer("packed", torch.randint(-(2**31), 2**31 - 1, (inputs // 8, outputs), dtype=torch.int32))
        self.register_buffer("zeros", torch.randint(-(2**31), 2**31 - 1, (inputs // group, outputs // 8), dtype=torch.int32))
        self.register_buffer("scales", torch.rand(inputs // group, outputs) * 4e-3 + 1e-3)
        self.register_buffer("shifts", torch.arange(0, 32, 4, dtype=torch.int32), persistent=False)
        self.bias = nn.Parameter(torch.randn(outputs) * 0.02)

    def forward(self, x):
        weight = ((self.packed[:, None, :] >> self.shifts[None, :, None]) & 15).reshape(self.inputs, self.outputs)
        zeros = ((self.zeros[:, :, None] >> self.shifts[None, None, :]) & 15).reshape(-1, self.outputs)
        grouped = weight.view(-1, self.group, self.outputs) - zeros[:, None, :]
        dense = (grouped.to(x.dtype) * self.scales[:, None, :].to(x.dtype)).view(self.inputs, self.outputs)
        return torch.matmul(x, dense) + self.bias


def get_inputs():
    return [torch.randn(TOKENS, INPUTS)]


def get_init_inputs():
    return [INPUTS, OUTPUTS, GROUP]
