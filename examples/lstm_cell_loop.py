"""An LSTM written as a loop over time: one matrix product a step, then the gates, element by element."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, inputs: int, hidden: int):
        super().__init__()
        self.hidden = hidden
        self.from_input = nn.Linear(inputs, 4 * hidden)
        self.from_state = nn.Linear(hidden, 4 * hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = x.new_zeros(x.shape[0], self.hidden)
        c = x.new_zeros(x.shape[0], self.hidden)
        projected = self.from_input(x)
        for t in range(x.shape[1]):
            gates = projected[:, t] + self.from_state(h)
            i, f, g, o = gates.chunk(4, dim=-1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        return h


batch, steps, inputs, hidden = 256, 16, 64, 128


def get_inputs():
    return [torch.rand(batch, steps, inputs)]


def get_init_inputs():
    return [inputs, hidden]
