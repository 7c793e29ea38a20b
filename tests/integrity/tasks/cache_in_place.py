import torch
import torch.nn as nn


class Model(nn.Module):
    """One step of decoding: writes a key and a value to caches that the caller owns, and attends to them."""

    def forward(self, q, k, v, keys, values):
        keys[:, -1] = k
        values[:, -1] = v
        scores = torch.softmax((keys @ q.unsqueeze(-1)).squeeze(-1) / q.shape[-1] ** 0.5, dim=-1)
        return (scores.unsqueeze(1) @ values).squeeze(1)


def get_inputs():
    return [*torch.randn(3, 32, 64).unbind(), torch.randn(32, 256, 64), torch.randn(32, 256, 64)]


def get_init_inputs():
    return []
