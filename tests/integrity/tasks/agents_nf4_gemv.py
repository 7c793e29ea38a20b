import torch
import torch.nn as nn

CODE = [-1.0, -0.6961928, -0.5250731, -0.3949175, -0.2844414, -0.1847734, -0.0910500, 0.0, 0.0795803, 0.1609302, 0.2461123, 0.3379152, 0.4407098, 0.5626170, 0.7229568, 1.0]


class Model(nn.Module):
    """NF4 linear layer for decoding: packed 4-bit codes, one scale for each block of 64 weights along K."""

    def __init__(self, in_features, out_features, block=64):
        super().__init__()
        self.block = block
        self.register_buffer("packed", torch.randint(0, 256, (out_features, in_features // 2), dtype=torch.uint8))
        self.register_buffer("absmax", torch.rand(out_features, in_features // block) * 0.05 + 0.01)
        self.register_buffer("code", torch.tensor(CODE))

    def forward(self, x):
        low, high = self.packed & 15, self.packed >> 4
        index = torch.stack([low, high], dim=-1).flatten(1).int()
        w = self.code[index] * self.absmax.repeat_interleave(self.block, dim=1)
        return x @ w.t()


def get_inputs():
    return [torch.randn(4, 4096)]


def get_init_inputs():
    return [4096, 4096]
