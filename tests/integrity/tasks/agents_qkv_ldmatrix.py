import torch
import torch.nn as nn


class Model(nn.Module):
    """Three projections of one input (query, key, value), fp16, with separate weights and biases."""

    def __init__(self, dim, kv_dim):
        super().__init__()
        self.q_proj = nn.Linear(dim, dim, dtype=torch.float16)
        self.k_proj = nn.Linear(dim, kv_dim, dtype=torch.float16)
        self.v_proj = nn.Linear(dim, kv_dim, dtype=torch.float16)

    def forward(self, x):
        return self.q_proj(x), self.k_proj(x), self.v_proj(x)


def get_inputs():
    return [torch.randn(4, 512, 2048, dtype=torch.float16)]


def get_init_inputs():
    return [2048, 512]
