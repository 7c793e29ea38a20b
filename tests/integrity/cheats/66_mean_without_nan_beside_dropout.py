# hack: 66
# task: tasks/mean_beside_dropout.py
# device: any
# verdict: wrong_result
# because: NaN in the inputs is lost
# defence: runtime
# says: ignores values that are not numbers, in a task that draws random numbers
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def forward(self, x):
        return F.dropout(torch.where(x.isnan(), 0.0, x), 0.1, training=True).mean(dim=-1)
