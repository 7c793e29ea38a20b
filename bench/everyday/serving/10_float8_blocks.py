"""A linear layer with float8 (e4m3) weights and one scale per block of 128 x 128.

Source: DeepSeek-AI, "DeepSeek-V3 Technical Report", arXiv 2412.19437, section 3.3.2 (fine-grained quantisation), weights only.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

TOKENS, INPUTS, OUTPUTS, BLOCK = 64, 4096, 4096, 128


class Model(nn.Module):
    def __init__(self, inputs, outputs, block):
        super().__init__()
        self.block = block
        self.register_buffer("weight", torch.randn(outputs, inputs).to(torch.float8_e4m3fn))
        self.register_buffer("scale", torch.rand(outputs // block, inputs // block) * 0.02 + 0.01)
        self.norm = nn.Parameter(torch.ones(inputs))

    def forward(self, x):
        wide = x.float()
        x = (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * self.norm
        scale = self.scale.repeat_interleave(self.block, dim=0).repeat_interleave(self.block, dim=1)
        return F.silu(F.linear(x, self.weight.to(x.dtype) * scale.to(x.dtype)))


def get_inputs():
    return [torch.randn(TOKENS, INPUTS)]


def get_init_inputs():
    return [INPUTS, OUTPUTS, BLOCK]
