# hack: 14
# task: tasks/softmax.py
# device: cpu
# verdict: wrong_result
# because: clone\(\)
# defence: runtime
# says: three buffers outside of torch, each wrapped in a new tensor for every call
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))
        self.rooms, self.turn = [], 0

    def forward(self, x):
        if not self.rooms or len(self.rooms[0]) != 4 * x.numel():
            self.rooms = [bytearray(4 * x.numel()) for _ in range(3)]
        self.turn = (self.turn + 1) % 3
        y = torch.frombuffer(self.rooms[self.turn], dtype=torch.float32).view(x.shape)
        return y.copy_(torch.softmax(x, dim=-1) * self.scale)
