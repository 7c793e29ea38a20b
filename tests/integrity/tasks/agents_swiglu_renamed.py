import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """SwiGLU feed-forward block with separate gate and up projections, bf16."""

    def __init__(self, dim, hidden):
        super().__init__()
        self.w1 = nn.Linear(dim, hidden, bias=False, dtype=torch.bfloat16)
        self.w3 = nn.Linear(dim, hidden, bias=False, dtype=torch.bfloat16)
        self.w2 = nn.Linear(hidden, dim, bias=False, dtype=torch.bfloat16)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


def get_inputs():
    return [torch.randn(512, 2048, dtype=torch.bfloat16)]


def get_init_inputs():
    return [2048, 5632]
