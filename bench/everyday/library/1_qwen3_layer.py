"""A decoder layer of Qwen3 0.6B over a prompt, as implemented in `transformers`: built from its configuration, with random weights.

Source: `transformers.models.qwen3` (Qwen3DecoderLayer); Qwen Team, "Qwen3 Technical Report", arXiv 2505.09388.
"""

import torch
import torch.nn as nn
from transformers.models.qwen3.configuration_qwen3 import Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import Qwen3DecoderLayer, Qwen3RotaryEmbedding

BATCH, LENGTH, WIDTH = 4, 512, 1024


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        config = Qwen3Config(hidden_size=width, intermediate_size=3 * width, num_attention_heads=16, num_key_value_heads=8, head_dim=128)
        config._attn_implementation = "sdpa"
        self.layer = Qwen3DecoderLayer(config, layer_idx=0)
        self.rotary = Qwen3RotaryEmbedding(config)

    def forward(self, hidden, positions):
        """`hidden` (batch, length, width), `positions` (batch, length)."""
        return self.layer(hidden, position_embeddings=self.rotary(hidden, positions))


def get_inputs():
    return [torch.randn(BATCH, LENGTH, WIDTH), torch.arange(LENGTH).repeat(BATCH, 1)]


def get_init_inputs():
    return [WIDTH]
