import math

import torch
import torch.nn as nn


class Model(nn.Module):
    """Causal self-attention block of a GPT (bf16), written out."""

    def __init__(self, n_embd, n_head):
        super().__init__()
        self.c_attn = nn.Linear(n_embd, 3 * n_embd, dtype=torch.bfloat16)
        self.c_proj = nn.Linear(n_embd, n_embd, dtype=torch.bfloat16)
        self.n_head = n_head

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.c_attn(x).split(C, dim=2)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) / math.sqrt(k.size(-1))
        mask = torch.ones(T, T, dtype=torch.bool, device=x.device).tril()
        att = att.masked_fill(~mask, float("-inf")).softmax(dim=-1)
        y = (att @ v).transpose(1, 2).reshape(B, T, C)
        return self.c_proj(y)


def get_inputs():
    return [torch.randn(8, 1024, 768, dtype=torch.bfloat16)]


def get_init_inputs():
    return [768, 12]
