# task: tasks/train_dropout_free.py
# device: cuda
# verdict: class orchestration
# mode: train
# says: the library in train mode; the statistics are gathered on a side stream, for which forward waits
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.norm = nn.BatchNorm1d(features)
        self.drop = nn.Dropout(0.0)
        self.side = None

    def forward(self, x):
        if self.side is None:
            self.side = torch.cuda.Stream()
        main, norm = torch.cuda.current_stream(), self.norm
        h = self.linear(x)
        variance, mean = torch.var_mean(h, dim=0, correction=0)
        self.side.wait_stream(main)
        with torch.cuda.stream(self.side):
            rows = h.shape[0]
            norm.running_mean.lerp_(mean, norm.momentum)
            norm.running_var.lerp_(variance * (rows / (rows - 1)), norm.momentum)
            norm.num_batches_tracked += 1
        scale = torch.rsqrt(variance + norm.eps) * norm.weight
        y = torch.relu((h - mean) * scale + norm.bias)
        for tensor in (mean, variance):
            tensor.record_stream(self.side)
        main.wait_stream(self.side)
        return y
