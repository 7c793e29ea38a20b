# task: tasks/step_in_place.py
# device: any
# says: makes the same step with out arguments, and uses a sum where the task takes a mean
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, weights, momentum, gradient):
        torch.add(gradient, momentum, alpha=0.9, out=momentum)
        torch.add(weights, momentum, alpha=-0.1, out=weights)
        return (momentum * momentum).sum() / momentum.numel()
