# task: tasks/mlp.py
# device: any
# says: a torch.autograd.Function with forward and backward, although only forward is needed
import torch
import torch.nn as nn


class Residual(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w1, b1, w2, b2):
        hidden = torch.addmm(b1, x, w1.t()).clamp_(min=0)
        ctx.save_for_backward(x, w1, w2, hidden)
        return torch.addmm(b2, hidden, w2.t()).add_(x)

    @staticmethod
    def backward(ctx, grad):
        x, w1, w2, hidden = ctx.saved_tensors
        inner = (grad @ w2) * (hidden > 0)
        return grad + inner @ w1, inner.t() @ x, inner.sum(0), grad.t() @ hidden, grad.sum(0)


class ModelNew(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.first = nn.Linear(features, hidden)
        self.second = nn.Linear(hidden, features)

    def forward(self, x):
        return Residual.apply(x, self.first.weight, self.first.bias, self.second.weight, self.second.bias)
