"""Twelve refinements of a flow field by a convolutional GRU, as in an optical flow estimator.

Source: Teed and Deng, "RAFT: Recurrent All-Pairs Field Transforms for Optical Flow", arXiv 2003.12039, section 3.3.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH, HEIGHT, WIDTH, HIDDEN, CONTEXT, ITERATIONS = 4, 48, 64, 128, 128, 12


class Model(nn.Module):
    def __init__(self, hidden, context, iterations):
        super().__init__()
        self.iterations = iterations
        inputs = hidden + context + 64
        self.flow_in = nn.Conv2d(2, 64, 7, padding=3)
        self.update, self.reset, self.new = (nn.Conv2d(inputs, hidden, 3, padding=1) for _ in range(3))
        self.head1, self.head2 = nn.Conv2d(hidden, 128, 3, padding=1), nn.Conv2d(128, 2, 3, padding=1)

    def forward(self, hidden, context):
        """(batch, hidden, height, width), (batch, context, height, width) -> flow (batch, 2, height, width)."""
        flow = torch.zeros_like(hidden[:, :2])
        hidden, context = torch.tanh(hidden), torch.relu(context)
        for _ in range(self.iterations):
            given = torch.cat((context, F.relu(self.flow_in(flow))), dim=1)
            both = torch.cat((hidden, given), dim=1)
            update, reset = torch.sigmoid(self.update(both)), torch.sigmoid(self.reset(both))
            new = torch.tanh(self.new(torch.cat((reset * hidden, given), dim=1)))
            hidden = (1 - update) * hidden + update * new
            flow = flow + self.head2(F.relu(self.head1(hidden)))
        return flow


def get_inputs():
    return [torch.randn(BATCH, HIDDEN, HEIGHT, WIDTH), torch.randn(BATCH, CONTEXT, HEIGHT, WIDTH)]


def get_init_inputs():
    return [HIDDEN, CONTEXT, ITERATIONS]
