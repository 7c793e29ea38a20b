# task: tasks/top_experts.py
# device: any
# says: takes the last of several equal scores; torch.topk does not specify which of them comes first
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, scores):
        last = scores.shape[-1] - 1
        first, place = scores.flip(-1).max(dim=-1, keepdim=True)
        rest = scores.scatter(-1, last - place, -torch.inf)
        second, other = rest.flip(-1).max(dim=-1, keepdim=True)
        return torch.softmax(torch.cat([first, second], -1), dim=-1), last - torch.cat([place, other], -1)
