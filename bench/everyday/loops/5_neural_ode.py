"""A neural ordinary differential equation, integrated with 40 steps of the classical Runge-Kutta method, each with four evaluations of a small
network.

Source: Chen et al., "Neural Ordinary Differential Equations", arXiv 1806.07366.
"""

import torch
import torch.nn as nn

BATCH, WIDTH, INNER, STEPS = 512, 64, 256, 40


class Model(nn.Module):
    def __init__(self, width, inner, steps):
        super().__init__()
        self.steps = steps
        self.wide, self.narrow = nn.Linear(width + 1, inner), nn.Linear(inner, width)

    def slope(self, time, state):
        stamped = torch.cat((state, torch.full_like(state[:, :1], time)), dim=-1)
        return self.narrow(torch.tanh(self.wide(stamped)))

    def forward(self, state):
        size = 1.0 / self.steps
        for step in range(self.steps):
            time = step * size
            k1 = self.slope(time, state)
            k2 = self.slope(time + size / 2, state + size / 2 * k1)
            k3 = self.slope(time + size / 2, state + size / 2 * k2)
            k4 = self.slope(time + size, state + size * k3)
            state = state + size / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return state


def get_inputs():
    return [torch.randn(BATCH, WIDTH)]


def get_init_inputs():
    return [WIDTH, INNER, STEPS]
