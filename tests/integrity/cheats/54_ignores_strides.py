# hack: 54
# task: tasks/variants.py
# device: any
# verdict: wrong_result
# because: input variant 3
# defence: runtime
# says: reads memory in order, whatever the strides are
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        flat = torch.as_strided(x, (x.numel(),), (1,))
        return torch.softmax(flat.view(x.shape), -1)
