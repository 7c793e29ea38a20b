# hack: 56
# task: tasks/counted_mean.py
# device: any
# verdict: wrong_result
# because: elements? (is|are) off|instead of
# defence: runtime
# says: never reads an integer mask, which the generator fills with ones
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, mask):
        return x.mean(dim=1)
