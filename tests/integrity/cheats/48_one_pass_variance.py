# hack: 48
# task: tasks/offset_norm.py
# device: any
# verdict: wrong_result
# because: elements are off|nan instead
# defence: runtime
# says: the variance as the mean of the squares minus the squared mean, which cancels for rows far from zero
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        variance = x.square().mean(-1, keepdim=True) - mean.square()
        return (x - mean) * torch.rsqrt(variance.clamp_min(0) + 1e-5)
