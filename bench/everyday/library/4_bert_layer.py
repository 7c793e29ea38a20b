"""A layer of BERT large over padded sentences, as implemented in `transformers`: built from its configuration, with random weights.

Source: `transformers.models.bert` (BertLayer); Devlin et al., "BERT", arXiv 1810.04805.
"""

import torch
import torch.nn as nn
from transformers.models.bert.configuration_bert import BertConfig
from transformers.models.bert.modeling_bert import BertLayer

BATCH, LENGTH, WIDTH = 16, 384, 1024


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        config = BertConfig(
            hidden_size=width, num_attention_heads=width // 64, intermediate_size=4 * width, hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )  # fmt: skip
        config._attn_implementation = "sdpa"
        self.layer = BertLayer(config)

    def forward(self, hidden, real):
        """`hidden` (batch, length, width), `real` bool (batch, length): false for padding."""
        mask = torch.zeros_like(real, dtype=hidden.dtype).masked_fill(~real, torch.finfo(hidden.dtype).min)
        out = self.layer(hidden, attention_mask=mask[:, None, None])
        return out[0] if isinstance(out, tuple) else out


def get_inputs():
    lengths = torch.randint(LENGTH // 4, LENGTH + 1, (BATCH, 1))
    return [torch.randn(BATCH, LENGTH, WIDTH), torch.arange(LENGTH) < lengths]


def get_init_inputs():
    return [WIDTH]
