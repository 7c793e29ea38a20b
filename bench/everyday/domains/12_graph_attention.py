"""A graph attention layer: scores for 300,000 edges, a softmax over each node's incoming edges, and a weighted sum of its neighbours.

Source: Brody et al., "How Attentive are Graph Attention Networks?" (GATv2), arXiv 2105.14491.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

NODES, EDGES, INPUTS, HEADS, FEATURES = 20000, 300000, 128, 4, 32


class Model(nn.Module):
    def __init__(self, inputs, heads, features):
        super().__init__()
        self.heads, self.features = heads, features
        self.left = nn.Linear(inputs, heads * features)
        self.right = nn.Linear(inputs, heads * features)
        self.score = nn.Parameter(torch.randn(heads, features) * features**-0.5)
        self.bias = nn.Parameter(torch.zeros(heads * features))

    def forward(self, nodes, edges):
        """`nodes` (nodes, inputs), `edges` (2, edges): source and target -> (nodes, heads * features)."""
        source, target = edges[0], edges[1]
        left = self.left(nodes).view(-1, self.heads, self.features)
        right = self.right(nodes).view(-1, self.heads, self.features)
        score = (F.leaky_relu(left[source] + right[target], 0.2) * self.score).sum(dim=-1)  # (edges, heads)
        index = target[:, None].expand_as(score)
        most = torch.full((nodes.shape[0], self.heads), float("-inf"), dtype=score.dtype, device=score.device)
        most = most.scatter_reduce(0, index, score, reduce="amax", include_self=True)
        weight = torch.exp(score - most[target])
        total = torch.zeros_like(most).index_add(0, target, weight)
        weight = weight / (total[target] + 1e-16)
        out = torch.zeros_like(left).index_add(0, target, left[source] * weight[..., None])
        return F.elu(out.flatten(1) + self.bias)


def get_inputs():
    return [torch.randn(NODES, INPUTS), torch.randint(0, NODES, (2, EDGES))]


def get_init_inputs():
    return [INPUTS, HEADS, FEATURES]
