"""An LSTM with layer norms on both products and on the cell state, written as a cell in a loop of 256 steps.

Source: Ba et al., "Layer Normalization", arXiv 1607.06450, supplementary equations 20 to 22.
"""

import torch
import torch.nn as nn

BATCH, LENGTH, INPUTS, HIDDEN = 64, 256, 256, 256


class Cell(nn.Module):
    def __init__(self, inputs, hidden):
        super().__init__()
        self.from_input = nn.Linear(inputs, 4 * hidden, bias=False)
        self.from_hidden = nn.Linear(hidden, 4 * hidden, bias=False)
        self.norm_input, self.norm_hidden, self.norm_cell = nn.LayerNorm(4 * hidden), nn.LayerNorm(4 * hidden), nn.LayerNorm(hidden)

    def forward(self, x, hidden, cell):
        gates = self.norm_input(self.from_input(x)) + self.norm_hidden(self.from_hidden(hidden))
        forget, write, read, new = gates.chunk(4, dim=-1)
        cell = torch.sigmoid(forget) * cell + torch.sigmoid(write) * torch.tanh(new)
        return torch.sigmoid(read) * torch.tanh(self.norm_cell(cell)), cell


class Model(nn.Module):
    def __init__(self, inputs, hidden):
        super().__init__()
        self.hidden = hidden
        self.cell = Cell(inputs, hidden)

    def forward(self, x):
        """(length, batch, inputs) -> outputs of all steps, last cell state."""
        hidden = x.new_zeros(x.shape[1], self.hidden)
        cell = x.new_zeros(x.shape[1], self.hidden)
        outputs = []
        for step in x:
            hidden, cell = self.cell(step, hidden, cell)
            outputs.append(hidden)
        return torch.stack(outputs), cell


def get_inputs():
    return [torch.randn(LENGTH, BATCH, INPUTS)]


def get_init_inputs():
    return [INPUTS, HIDDEN]
