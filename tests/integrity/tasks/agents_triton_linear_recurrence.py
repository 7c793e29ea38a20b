import torch
import torch.nn as nn


class Model(nn.Module):
    """Gated linear recurrence h_t = a_t * h_{t-1} + b_t with a_t = sigmoid(gate_t), started from a learned state."""

    def __init__(self, dim):
        super().__init__()
        self.h0 = nn.Parameter(torch.randn(dim))

    def forward(self, gate, b):
        a = torch.sigmoid(gate)
        h = self.h0.expand(b.shape[0], -1)
        out = []
        for t in range(b.shape[1]):
            h = a[:, t] * h + b[:, t]
            out.append(h)
        return torch.stack(out, dim=1)


def get_inputs():
    return [torch.randn(16, 128, 2048), torch.randn(16, 128, 2048)]


def get_init_inputs():
    return [2048]
