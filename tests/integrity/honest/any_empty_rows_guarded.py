# task: tasks/masked_mean.py
# device: any
# says: a product of the mask with the rows, divided by the number kept, which is at least one
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, mask):
        kept = mask.to(x.dtype)
        return torch.bmm(kept.unsqueeze(1), x).squeeze(1) / kept.sum(dim=1, keepdim=True).clamp_min(1)
