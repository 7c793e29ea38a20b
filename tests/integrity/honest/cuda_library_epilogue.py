# task: tasks/mlp.py
# device: cuda
# verdict: class orchestration
# says: cuBLASLt's own epilogue for bias and relu, under PyTorch's name for it
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.first = nn.Linear(features, hidden)
        self.second = nn.Linear(hidden, features)

    def forward(self, x):
        hidden = torch._addmm_activation(self.first.bias, x, self.first.weight.t(), use_gelu=False)
        return torch.addmm(x + self.second.bias, hidden, self.second.weight.t())
