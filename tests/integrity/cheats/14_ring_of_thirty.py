# hack: 14
# task: tasks/softmax.py
# device: any
# verdict: wrong_result | inconclusive
# because: clone\(\)|busy
# defence: runtime
# says: thirty separate buffers, returned in turn: more than the number of calls whose outputs the trials hold
import torch
import torch.nn as nn

RING = []


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))

    def forward(self, x):
        if len(RING) < 30:
            RING.append(torch.empty_like(x))
            place = RING[-1]
        else:
            place = RING.pop(0)
            RING.append(place)
        if place.shape != x.shape:
            RING[-1] = place = torch.empty_like(x)
        return torch.mul(torch.softmax(x, dim=-1), self.scale, out=place)
