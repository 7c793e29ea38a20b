"""A linear layer in which each request uses its own low-rank adapter, gathered from a table of 64.

Source: Hu et al., "LoRA", arXiv 2106.09685; batched over adapters as in Chen et al., "Punica", arXiv 2310.18547.
"""

import torch
import torch.nn as nn

REQUESTS, INPUTS, OUTPUTS, ADAPTERS, RANK = 128, 4096, 4096, 64, 16


class Model(nn.Module):
    def __init__(self, inputs, outputs, adapters, rank):
        super().__init__()
        self.base = nn.Linear(inputs, outputs, bias=False)
        self.down = nn.Parameter(torch.randn(adapters, inputs, rank) * inputs**-0.5)
        self.up = nn.Parameter(torch.randn(adapters, rank, outputs) * rank**-0.5)
        self.register_buffer("scale", torch.rand(adapters) + 0.5)

    def forward(self, x, adapter):
        """`x` (requests, inputs), `adapter` (requests,): numbers below `adapters`."""
        narrow = torch.bmm(x[:, None], self.down[adapter])
        wide = torch.bmm(narrow, self.up[adapter])[:, 0]
        return self.base(x) + wide * self.scale[adapter][:, None]


def get_inputs():
    return [torch.randn(REQUESTS, INPUTS), torch.randint(0, ADAPTERS, (REQUESTS,))]


def get_init_inputs():
    return [INPUTS, OUTPUTS, ADAPTERS, RANK]
