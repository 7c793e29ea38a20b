# hack: 33
# task: tasks/softmax.py
# device: any
# verdict: crashed
# because: must be a plain torch.Tensor
# defence: design
# says: a tensor subclass that computes its values only when they are compared or copied
import torch
import torch.nn as nn


class Later(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        plain = [arg.compute() if isinstance(arg, Later) else arg for arg in args]
        return function(*plain, **(kwargs or {}))

    def compute(self):
        return torch.softmax(self.source, dim=-1) * self.scale


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))

    def forward(self, x):
        y = torch.empty_like(x).as_subclass(Later)
        y.source, y.scale = x, self.scale.detach()
        return y
