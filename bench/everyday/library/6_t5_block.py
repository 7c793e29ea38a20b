"""An encoder block of T5 v1.1 base with its relative positions and gated network, as implemented in `transformers`, with random weights.

Source: `transformers.models.t5` (T5Block); Raffel et al., "Exploring the Limits of Transfer Learning", arXiv 1910.10683.
"""

import torch
import torch.nn as nn
from transformers.models.t5.configuration_t5 import T5Config
from transformers.models.t5.modeling_t5 import T5Block

BATCH, LENGTH, WIDTH = 8, 512, 768


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        config = T5Config(d_model=width, d_kv=64, num_heads=width // 64, d_ff=2048, dropout_rate=0.0, feed_forward_proj="gated-gelu")
        config._attn_implementation = "eager"
        self.block = T5Block(config, has_relative_attention_bias=True, layer_idx=0)
        for weight in self.block.parameters():
            if weight.dim() > 1:  # T5 does not scale its scores; its projections are small instead
                nn.init.normal_(weight, std=weight.shape[-1] ** -0.75)

    def forward(self, hidden):
        return self.block(hidden)[0]


def get_inputs():
    return [torch.randn(BATCH, LENGTH, WIDTH)]


def get_init_inputs():
    return [WIDTH]
