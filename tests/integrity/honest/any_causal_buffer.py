# task: tasks/causal_buffer.py
# device: any
# says: assumes that the boolean buffer is a causal mask, which no state dict for this layer changes
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, places):
        super().__init__()
        self.register_buffer("mask", torch.tril(torch.ones(places, places, dtype=torch.bool)))
        self.register_buffer("places", torch.arange(places))
        self.table = nn.Embedding(places, 32)

    def forward(self, x):
        x = x + self.table.weight
        return torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)
