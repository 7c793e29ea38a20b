# task: tasks/step_in_place.py
# device: any
# says: makes the same step with torch.lerp and out arguments
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, weights, momentum, gradient):
        torch.add(gradient, momentum, alpha=0.9, out=momentum)
        torch.add(weights, momentum, alpha=-0.1, out=weights)
        return torch.linalg.vector_norm(momentum) ** 2 / momentum.numel()
