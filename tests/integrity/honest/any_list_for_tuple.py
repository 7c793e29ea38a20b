# task: tasks/embed_sum.py
# device: any
# says: a list of outputs where the task returns a tuple
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, words, features):
        super().__init__()
        self.table = nn.Parameter(torch.randn(words, features))

    def forward(self, indices):
        return [F.embedding_bag(indices, self.table, mode="sum"), torch.count_nonzero(indices, dim=1)]
