"""The latent attention of DeepSeek-V3, narrower, as implemented in `transformers`: built from its configuration, with random weights.

Source: `transformers.models.deepseek_v3` (DeepseekV3Attention); DeepSeek-AI, "DeepSeek-V3 Technical Report", arXiv 2412.19437.
"""

import torch
import torch.nn as nn
from transformers.models.deepseek_v3.configuration_deepseek_v3 import DeepseekV3Config
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Attention, DeepseekV3RotaryEmbedding

BATCH, LENGTH, WIDTH, HEADS = 2, 512, 2048, 16


class Model(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        config = DeepseekV3Config(
            hidden_size=width, num_attention_heads=heads, num_key_value_heads=heads, q_lora_rank=768, kv_lora_rank=256, qk_nope_head_dim=128,
            qk_rope_head_dim=64, v_head_dim=128,
        )  # fmt: skip
        config._attn_implementation = "sdpa"
        self.attention = DeepseekV3Attention(config, layer_idx=0)
        self.rotary = DeepseekV3RotaryEmbedding(config)

    def forward(self, hidden, positions):
        """`hidden` (batch, length, width), `positions` (batch, length)."""
        return self.attention(hidden, position_embeddings=self.rotary(hidden, positions), attention_mask=None)[0]


def get_inputs():
    return [torch.randn(BATCH, LENGTH, WIDTH), torch.arange(LENGTH).repeat(BATCH, 1)]


def get_init_inputs():
    return [WIDTH, HEADS]
