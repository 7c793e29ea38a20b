# task: tasks/rms_norm.py
# device: any
# says: a scratch tensor is kept between calls; the output is newly allocated each time
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.eps = eps
        self._scratch = None

    def forward(self, x):
        if self._scratch is None or self._scratch.shape != x.shape or self._scratch.device != x.device or self._scratch.dtype != x.dtype:
            self._scratch = torch.empty_like(x)
        torch.mul(x, x, out=self._scratch)
        scale = self._scratch.mean(dim=-1, keepdim=True).add_(self.eps).rsqrt_()
        return torch.mul(x, scale).mul_(self.weight)
