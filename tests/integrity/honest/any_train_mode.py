# task: tasks/train_dropout_free.py
# device: any
# mode: train
# says: batch norm's function with its own running statistics, in train mode
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.norm = nn.BatchNorm1d(features)
        self.drop = nn.Dropout(0.0)

    def forward(self, x):
        norm = self.norm
        h = torch.addmm(self.linear.bias, x, self.linear.weight.t())
        if norm.training:
            norm.num_batches_tracked.add_(1)
        h = F.batch_norm(h, norm.running_mean, norm.running_var, norm.weight, norm.bias, norm.training, norm.momentum, norm.eps)
        return F.relu_(h)
