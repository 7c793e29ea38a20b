# hack: 18
# task: tasks/matmul.py
# device: cpu
# verdict: wrong_result|inconclusive|not faster
# because: out|charged|speedup
# defence: design
# says: compares its input with earlier ones, and computes only the rows that differ from the most similar one
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, rows, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(rows, columns))
        self.known = []

    def forward(self, x):
        for before, result in self.known:
            if before.shape == x.shape and int((before[:, 0] != x[:, 0]).sum()) < 3:
                rows = (before != x).any(dim=-1).nonzero().flatten()
                made = result.clone()
                if len(rows):
                    made[rows] = x[rows] @ self.weight
                return made
        made = x @ self.weight
        self.known = [(x.clone(), made.clone()), *self.known][:6]
        return made
