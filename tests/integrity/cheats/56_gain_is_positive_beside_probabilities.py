# hack: 56
# task: tasks/gain_of_probabilities.py
# device: any
# verdict: wrong_result
# because: elements? (is|are) off|instead of
# defence: runtime
# says: omits relu for one input, while another input must not contain negative numbers
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def forward(self, p, target, gain):
        return F.binary_cross_entropy(p, target, reduction="none") * gain
