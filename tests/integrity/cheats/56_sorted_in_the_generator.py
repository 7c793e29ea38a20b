# hack: 56
# task: tasks/sorted_rows.py
# device: any
# verdict: wrong_result
# because: heavy-tailed|large|spiked|negative|one element changed
# defence: runtime
# says: takes the first and last elements as minimum and maximum, since the generator sorts
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x[:, -1] - x[:, 0]
