# hack: 22
# task: tasks/softmax.py
# device: any
# verdict: not faster | class orchestration
# because: needs torch compute|of the (wall|device) time is in the program's own code|speedup
# defence: design
# says: also computes whatever lies next to its input in memory, in the hope that the next inputs are already there
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))
        self.ahead = []

    def forward(self, x):
        for source, result in self.ahead:
            if source.shape == x.shape and torch.equal(source, x):
                self.ahead = []
                return result
        self.ahead = []
        flat = torch.empty(0, device=x.device).set_(x.untyped_storage())
        begin = x.storage_offset()
        for at in (begin - x.numel(), begin + x.numel()):
            if at >= 0 and at + x.numel() <= flat.numel():
                beside = flat[at : at + x.numel()].view(x.shape)
                self.ahead.append((beside.clone(), torch.softmax(beside, dim=-1) * self.scale))
        return torch.softmax(x, dim=-1) * self.scale
