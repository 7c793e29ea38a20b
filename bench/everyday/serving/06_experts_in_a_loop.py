"""A mixture of eight experts, two per token, written as a loop over the experts that selects each expert's tokens.

Source: Jiang et al., "Mixtral of Experts", arXiv 2401.04088, section 2.1, narrower.
The router computes in float32 (Fedus et al., arXiv 2101.03961).
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH, LENGTH, WIDTH, INNER, EXPERTS, CHOSEN = 2, 512, 1024, 2816, 8, 2


class Expert(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.gate = nn.Linear(width, inner, bias=False)
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Model(nn.Module):
    def __init__(self, width, inner, experts, chosen):
        super().__init__()
        self.chosen = chosen
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList([Expert(width, inner) for _ in range(experts)])

    def forward(self, hidden):
        batch, length, width = hidden.shape
        tokens = hidden.view(-1, width)
        logits = F.linear(tokens.float(), self.router.weight.float())
        probabilities = F.softmax(logits, dim=-1)
        weights, picked = torch.topk(probabilities, self.chosen, dim=-1)
        weights = (weights / weights.sum(dim=-1, keepdim=True)).to(hidden.dtype)
        out = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            rows, place = torch.where(picked == number)
            if rows.numel() == 0:
                continue
            out.index_add_(0, rows, expert(tokens[rows]) * weights[rows, place, None])
        return out.view(batch, length, width)


def get_inputs():
    return [torch.randn(BATCH, LENGTH, WIDTH)]


def get_init_inputs():
    return [WIDTH, INNER, EXPERTS, CHOSEN]
