import torch
import torch.nn as nn


class Model(nn.Module):
    """Attention of one new token for each sequence over a cache, of which only the first `lengths` entries are valid."""

    def __init__(self, heads, dim):
        super().__init__()
        self.scale = dim**-0.5

    def forward(self, q, k, v, lengths):
        score = torch.einsum("bhd,bhtd->bht", q, k) * self.scale
        mask = torch.arange(k.shape[2], device=k.device)[None, :] < lengths[:, None]
        score = score.masked_fill(~mask[:, None, :], float("-inf"))
        return torch.einsum("bht,bhtd->bhd", score.softmax(dim=-1), v)


batch, heads, tokens, dim = 16, 8, 2048, 64


def get_inputs():
    return [
        torch.randn(batch, heads, dim),
        torch.randn(batch, heads, tokens, dim),
        torch.randn(batch, heads, tokens, dim),
        torch.randint(1, tokens + 1, (batch,), dtype=torch.int32),
    ]


def get_init_inputs():
    return [heads, dim]
