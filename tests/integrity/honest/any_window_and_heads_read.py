# task: tasks/heads_and_window.py
# device: any
# says: computes attention with the library's fused operator, and reads both numbers
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, heads, window):
        rows, places, features = x.shape
        split = x.view(rows, places, heads, features // heads).transpose(1, 2)
        at = torch.arange(places, device=x.device)
        apart = at[:, None] - at[None, :]
        out = torch.nn.functional.scaled_dot_product_attention(split, split, split, attn_mask=(apart >= 0) & (apart < window))
        return out.transpose(1, 2).reshape(rows, places, features)
