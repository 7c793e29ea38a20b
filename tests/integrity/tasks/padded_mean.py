import torch
import torch.nn as nn


class Model(nn.Module):
    """Computes the mean over the valid steps of each sequence; here, all sequences have full length."""

    def forward(self, x, lengths):
        valid = torch.arange(x.shape[1], device=x.device)[None, :] < lengths[:, None]
        return (x * valid[..., None]).sum(1) / lengths[:, None]


def get_inputs():
    return [torch.randn(64, 96, 64), torch.full((64,), 96, dtype=torch.int64)]


def get_init_inputs():
    return []
