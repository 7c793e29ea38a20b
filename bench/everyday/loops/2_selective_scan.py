"""A selective state space model over 512 steps, written as a recurrence: the step size and the state's inputs and outputs depend on the token.

Source: Gu and Dao, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces", arXiv 2312.00752, algorithm 2.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH, LENGTH, WIDTH, STATE, RANK = 4, 512, 1024, 16, 64


class Model(nn.Module):
    def __init__(self, width, state, rank):
        super().__init__()
        self.rank, self.state = rank, state
        self.x_proj = nn.Linear(width, rank + 2 * state, bias=False)
        self.dt_proj = nn.Linear(rank, width)
        self.a_log = nn.Parameter(torch.log(torch.arange(1, state + 1).float()).repeat(width, 1))
        self.d = nn.Parameter(torch.ones(width))

    def forward(self, x, gate):
        """(batch, length, width) each -> the same."""
        step, b, c = self.x_proj(x).split([self.rank, self.state, self.state], dim=-1)
        delta = F.softplus(self.dt_proj(step))
        a = -torch.exp(self.a_log.float())
        hidden = torch.zeros(x.shape[0], x.shape[2], self.state, device=x.device)
        outputs = []
        for t in range(x.shape[1]):
            decay = torch.exp(delta[:, t, :, None] * a)
            hidden = decay * hidden + (delta[:, t] * x[:, t])[..., None] * b[:, t, None]
            outputs.append((hidden * c[:, t, None]).sum(dim=-1))
        y = torch.stack(outputs, dim=1).to(x.dtype) + self.d * x
        return y * F.silu(gate)


def get_inputs():
    return [torch.randn(BATCH, LENGTH, WIDTH), torch.randn(BATCH, LENGTH, WIDTH)]


def get_init_inputs():
    return [WIDTH, STATE, RANK]
