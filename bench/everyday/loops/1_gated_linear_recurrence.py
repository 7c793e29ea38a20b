"""A real-gated linear recurrent unit over 512 sequential steps, element by element.

Source: De et al., "Griffin: Mixing Gated Linear Recurrences with Local Attention", arXiv 2402.19427, section 2.4.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH, LENGTH, WIDTH = 8, 512, 1024


class Model(nn.Module):
    def __init__(self, width, power):
        super().__init__()
        self.power = power
        self.input_gate, self.decay_gate = nn.Linear(width, width), nn.Linear(width, width)
        self.decay = nn.Parameter(torch.linspace(4.0, 9.0, width))

    def forward(self, x):
        """(batch, length, width) -> the same."""
        gated = torch.sigmoid(self.input_gate(x)) * x
        log_decay = -self.power * torch.sigmoid(self.decay_gate(x)) * F.softplus(-self.decay)
        decay = torch.exp(log_decay)
        gated = torch.sqrt(1 - torch.exp(2 * log_decay)) * gated
        state = torch.zeros_like(x[:, 0])
        states = []
        for step in range(x.shape[1]):
            state = decay[:, step] * state + gated[:, step]
            states.append(state)
        return torch.stack(states, dim=1)


def get_inputs():
    return [torch.randn(BATCH, LENGTH, WIDTH)]


def get_init_inputs():
    return [WIDTH, 8.0]
