"""The policy: one small network that reads one row per legal move and selects one of the moves. Illegal moves have no row."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from agents.moving.features import MOVE, STATE, Floats, Seen

HIDDEN = 64


class Network(nn.Module):
    """Computes the preference and expected gain of each move. `worth` is the value of a state, used only as a baseline in training."""

    def __init__(self, seed: int = 0, hidden: int = HIDDEN):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.read, self.between, self.heads = nn.Linear(MOVE + STATE, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, 2)
            last = nn.Linear(32, 1)
            self.worth = nn.Sequential(nn.Linear(STATE, 32), nn.Tanh(), last)
            for layer in (self.heads, last):
                nn.init.normal_(layer.weight, std=0.01)
                nn.init.zeros_(layer.bias)

    def forward(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Maps an array of shape (moves, MOVE + STATE) to two results of shape (moves,)."""
        found: Tensor = self.heads(torch.tanh(self.between(torch.tanh(self.read(rows)))))
        return found[:, 0], found[:, 1]

    def layers(self) -> list[tuple[Floats, Floats]]:
        """Returns the layers in the form that `agents.moving.scorer` reads and writes."""
        return [(one.weight.detach().double().numpy(), one.bias.detach().double().numpy()) for one in (self.read, self.between, self.heads)]


class Batch:
    """A batch of states with different numbers of moves. `owner`: an array of shape (rows,) with the state to which each row belongs."""

    def __init__(self, states: Sequence[Seen]):
        counts = torch.tensor([len(seen.targets) for seen in states])
        self.rows = torch.cat([torch.from_numpy(seen.rows).float() for seen in states])
        self.states = torch.stack([torch.from_numpy(seen.state).float() for seen in states])
        self.owner = torch.repeat_interleave(torch.arange(len(states)), counts)
        self.first = torch.cumsum(counts, 0) - counts
        self.size = len(states)

    def log_chances(self, preferences: Tensor) -> Tensor:
        """Returns an array of shape (rows,): the log probability of each move among the moves of its state."""
        most = torch.full((self.size,), -torch.inf).scatter_reduce(0, self.owner, preferences.detach(), "amax")
        shifted = preferences - most[self.owner]
        total = torch.zeros(self.size).index_add(0, self.owner, shifted.exp())
        return shifted - total.log()[self.owner]

    def sums(self, values: Tensor) -> Tensor:
        """Sums values of shape (rows,) to shape (states,)."""
        return torch.zeros(self.size).index_add(0, self.owner, values)
