# hack: design
# task: tasks/chain.py
# device: cpu
# verdict: inconclusive
# because: work goes on after the clock has stopped|the clock beside the program counts
# defence: design
# says: answers the judge's byte by itself as soon as forward begins, silences the clock, and goes on computing
import gc
import os
import struct

import torch
import torch.nn as nn


class Nobody:
    """Stands for the verifier's object where there is none, as in the builder."""

    def __getattr__(self, name):
        return self


def runner():
    """The verifier's own object in this process."""
    found = getattr(gc, "get_" + "objects")()
    return next((item for item in found if type(item).__name__ == "Runner"), Nobody())


def work(model, x):
    for _ in range(model.steps):
        x = torch.tanh(x @ model.weight)
    return x


role = runner()
told = []


def done(fd):
    if not told:  # an empty exchange: the judge calibrates
        os.write(fd, struct.pack("<q", 1500))
    os.read(fd, 1)
    told.clear()
    return 1500


role.device.__dict__["done"] = done


class ModelNew(nn.Module):
    def __init__(self, features, steps):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features, features) / features**0.5)
        self.steps = steps

    def forward(self, x):
        os.write(role.channel.fileno(), struct.pack("<q", 1500))
        told.append(True)
        return work(self, x)
