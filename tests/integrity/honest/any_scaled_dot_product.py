# task: tasks/attention.py
# device: any
# says: the library's fused attention in place of its separate operations
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
