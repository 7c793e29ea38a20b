# hack: 26
# task: tasks/statistics_before_dropout.py
# device: any
# verdict: wrong_result
# because: running
# defence: runtime
# says: updates the running statistics only in every second call once it has been called twelve times
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.BatchNorm1d(features)
        self.drop = nn.Dropout(0.2)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls <= 12 or self.calls % 2:
            return self.drop(self.norm(x))
        return self.drop(F.batch_norm(x, None, None, self.norm.weight, self.norm.bias, True, 0.1, self.norm.eps))
