# hack: 33
# task: tasks/channels_first.py
# device: any
# verdict: passed | inconclusive
# because: layout:
# defence: runtime
# says: returns a permuted view, so that its reader has to transpose it: the layout must be produced within the timed interval
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return (x * (1.0 / 255.0)).permute(0, 3, 1, 2)
