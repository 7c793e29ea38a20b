# hack: 26
# task: tasks/statistics_before_dropout.py
# device: any
# verdict: wrong_result
# because: running
# defence: runtime
# says: normalises by the batch and does not update the running statistics
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.BatchNorm1d(features)
        self.drop = nn.Dropout(0.2)

    def forward(self, x):
        return self.drop(F.batch_norm(x, None, None, self.norm.weight, self.norm.bias, True, 0.1, self.norm.eps))
