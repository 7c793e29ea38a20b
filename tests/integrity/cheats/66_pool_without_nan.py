# hack: 66
# task: tasks/pooled.py
# device: any
# verdict: passed | wrong_result
# because: NaN in the inputs is lost
# defence: runtime
# says: compares as C's fmax does, which prefers whichever operand is a number
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(channels, 1, 1) + 0.5)

    def forward(self, x):
        y = torch.fmax(x[..., ::2, :], x[..., 1::2, :])
        return torch.fmax(y[..., ::2], y[..., 1::2]) * self.gain
