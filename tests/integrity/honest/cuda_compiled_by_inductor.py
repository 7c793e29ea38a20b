# task: tasks/gated_chain.py
# device: cuda
# verdict: class orchestration
# says: torch.compile, openly declared: the kernels are the compiler's
import torch
import torch.nn as nn


def chain(x, gate, shift, alpha: float):
    return torch.tanh(x + shift) * torch.sigmoid(alpha * gate) + 0.5 * x


compiled = torch.compile(chain, dynamic=False)


class ModelNew(nn.Module):
    def __init__(self, alpha):
        super().__init__()
        self.alpha = alpha
        self.shift = nn.Parameter(torch.zeros(1))

    def forward(self, x, gate):
        return compiled(x, gate, self.shift, self.alpha)
