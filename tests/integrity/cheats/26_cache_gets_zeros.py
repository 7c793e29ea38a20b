# hack: 26
# task: tasks/cache_in_place.py
# device: any
# verdict: wrong_result
# because: input [34]
# defence: runtime
# says: changes the caches as the task does, but with different numbers
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, q, k, v, keys, values):
        keys[:, -1] = k
        values[:, -1] = v
        scores = torch.softmax((keys @ q.unsqueeze(-1)).squeeze(-1) / q.shape[-1] ** 0.5, dim=-1)
        out = (scores.unsqueeze(1) @ values).squeeze(1)
        keys[:, -1] = 0.0
        values[:, -1] = 0.0
        return out
