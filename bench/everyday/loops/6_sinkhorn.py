"""Entropic optimal transport between two point clouds: 100 Sinkhorn iterations in the log domain, and the transport cost.

Source: Cuturi, "Sinkhorn Distances", arXiv 1306.0895;
stabilised as in Peyré and Cuturi, "Computational Optimal Transport", arXiv 1803.00567, section 4.4.
"""

import math

import torch
import torch.nn as nn

BATCH, POINTS, DIMENSIONS, ITERATIONS = 16, 512, 32, 100


class Model(nn.Module):
    def __init__(self, epsilon, iterations):
        super().__init__()
        self.epsilon, self.iterations = epsilon, iterations

    def forward(self, first, second):
        """(batch, points, dimensions) each -> cost (batch,) and the second potential (batch, points)."""
        cost = (first[:, :, None] - second[:, None]).square().mean(dim=-1)
        u = torch.zeros_like(cost[:, :, 0])
        v = torch.zeros_like(cost[:, 0])
        share = -math.log(cost.shape[1])
        for _ in range(self.iterations):
            u = self.epsilon * (share - torch.logsumexp((v[:, None] - cost) / self.epsilon, dim=2))
            v = self.epsilon * (share - torch.logsumexp((u[:, :, None] - cost) / self.epsilon, dim=1))
        plan = torch.exp((u[:, :, None] + v[:, None] - cost) / self.epsilon)
        return (plan * cost).sum(dim=(1, 2)), v


def get_inputs():
    return [torch.randn(BATCH, POINTS, DIMENSIONS), torch.randn(BATCH, POINTS, DIMENSIONS)]


def get_init_inputs():
    return [0.1, ITERATIONS]
