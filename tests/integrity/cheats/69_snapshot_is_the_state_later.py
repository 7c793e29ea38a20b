# hack: 69
# task: tasks/state_and_snapshot.py
# device: any
# verdict: wrong_result
# because: timed call \d+: out\[[01]\] shares its memory
# defence: runtime
# says: returns the state as its own snapshot once it has been called forty times
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        h = torch.relu(x).mul_(1.5)
        return h, h.clone() if self.calls <= 40 else h
