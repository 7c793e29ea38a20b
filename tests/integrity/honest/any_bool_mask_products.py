# task: tasks/masked_mean.py
# device: any
# says: a masked mean as a batched product with the mask
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, mask):
        weights = mask.to(x.dtype)
        total = torch.bmm(weights.unsqueeze(1), x).squeeze(1)
        return total / weights.sum(dim=1, keepdim=True).clamp_(min=1)
