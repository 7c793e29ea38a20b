"""An encoder layer of Whisper small over 30 seconds of audio, as implemented in `transformers`: built from its configuration, with random weights.

Source: `transformers.models.whisper` (WhisperEncoderLayer); Radford et al., arXiv 2212.04356.
"""

import torch
import torch.nn as nn
from transformers.models.whisper.configuration_whisper import WhisperConfig
from transformers.models.whisper.modeling_whisper import WhisperEncoderLayer

BATCH, LENGTH, WIDTH = 4, 1500, 768


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        config = WhisperConfig(d_model=width, encoder_attention_heads=width // 64, encoder_ffn_dim=4 * width, dropout=0.0)
        config._attn_implementation = "sdpa"
        self.layer = WhisperEncoderLayer(config)

    def forward(self, hidden):
        out = self.layer(hidden, attention_mask=None)
        return out[0] if isinstance(out, tuple) else out


def get_inputs():
    return [torch.randn(BATCH, LENGTH, WIDTH)]


def get_init_inputs():
    return [WIDTH]
