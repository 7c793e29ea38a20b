import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Projection with bias followed by RMSNorm over the output features, bf16."""

    def __init__(self, in_features, out_features, eps=1e-5):
        super().__init__()
        self.proj = nn.Linear(in_features, out_features, dtype=torch.bfloat16)
        self.norm = nn.RMSNorm(out_features, eps=eps, dtype=torch.bfloat16)

    def forward(self, x):
        return self.norm(self.proj(x))


def get_inputs():
    return [torch.randn(4096, 1024, dtype=torch.bfloat16)]


def get_init_inputs():
    return [1024, 4096]
