# hack: 26
# task: tasks/observed_range.py
# device: any
# verdict: wrong_result
# because: range
# defence: runtime
# says: does not update a buffer that the task updates and that is not in any state dict
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.register_buffer("range", torch.zeros(features), persistent=False)

    def forward(self, x):
        return self.linear(x)
