# hack: 33
# task: tasks/negated.py
# device: any
# verdict: wrong_result
# because: still to be negated
# defence: runtime
# says: returns a view with a pending negation, which is then computed by whoever copies it
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch._neg_view(torch.relu(x))
