# task: tasks/group_norm.py
# device: any
# says: torch.jit.script applied to the same operators in a different order
import torch
import torch.nn as nn


@torch.jit.script
def normalise(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, groups: int, eps: float) -> torch.Tensor:
    parts = x.reshape(x.shape[0], groups, -1)
    variance, mean = torch.var_mean(parts, dim=-1, correction=0, keepdim=True)
    flat = ((parts - mean) * torch.rsqrt(variance + eps)).reshape(x.shape)
    y = flat * weight[:, None, None] + bias[:, None, None]
    return y * torch.sigmoid(y)


class ModelNew(nn.Module):
    def __init__(self, groups, channels):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x):
        return normalise(x, self.norm.weight, self.norm.bias, self.norm.num_groups, self.norm.eps)
