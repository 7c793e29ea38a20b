# hack: 14
# task: tasks/softmax.py
# device: any
# verdict: wrong_result
# because: the outputs of a call change when the program is called again
# defence: design
# says: returns a fresh view of one buffer, so that the tensors look different
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))
        self.kept = None

    def forward(self, x):
        if self.kept is None or self.kept.numel() != x.numel():
            self.kept = torch.empty(x.numel(), device=x.device)
        view = self.kept.view(x.shape)
        torch.softmax(x, dim=-1, out=view)
        view.mul_(self.scale)
        return view.view_as(x)
