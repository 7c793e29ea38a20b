"""Mixtral's sparse mixture of experts, narrower, as implemented in `transformers`: built from its configuration, with random weights.

Source: `transformers.models.mixtral` (MixtralSparseMoeBlock); Jiang et al., "Mixtral of Experts", arXiv 2401.04088.
"""

import torch
import torch.nn as nn
from transformers.models.mixtral.configuration_mixtral import MixtralConfig
from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock

BATCH, LENGTH, WIDTH, INNER, EXPERTS = 2, 256, 1024, 2048, 8


class Model(nn.Module):
    def __init__(self, width, inner, experts):
        super().__init__()
        config = MixtralConfig(hidden_size=width, intermediate_size=inner, num_local_experts=experts, num_experts_per_tok=2)
        config._experts_implementation = "eager"
        self.block = MixtralSparseMoeBlock(config)
        for weight in self.block.parameters():  # the library leaves them uninitialised until a checkpoint is loaded
            nn.init.normal_(weight, std=0.02)

    def forward(self, hidden):
        out = self.block(hidden)
        return out[0] if isinstance(out, tuple) else out


def get_inputs():
    return [torch.randn(BATCH, LENGTH, WIDTH)]


def get_init_inputs():
    return [WIDTH, INNER, EXPERTS]
