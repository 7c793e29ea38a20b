# hack: 56
# task: tasks/padded_scores.py
# device: any
# verdict: wrong_result
# because: elements are off|instead of
# defence: runtime
# says: never reads the mask, which the generator fills with true
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, scores, keep):
        return torch.softmax(scores, dim=-1)
