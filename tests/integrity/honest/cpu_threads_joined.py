# task: tasks/branches.py
# device: cpu
# says: a pool of Python threads; forward waits for their work before it returns
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.left = nn.Linear(features, features)
        self.right = nn.Linear(features, features)
        self._pool = None

    def forward(self, x):
        if self._pool is None:
            self._pool = ThreadPoolExecutor(max_workers=2)

        def branch(layer, activation):
            with torch.no_grad():
                return activation(F.linear(x, layer.weight, layer.bias))

        left = self._pool.submit(branch, self.left, torch.relu_)
        right = self._pool.submit(branch, self.right, torch.tanh_)
        return left.result().add_(right.result())
