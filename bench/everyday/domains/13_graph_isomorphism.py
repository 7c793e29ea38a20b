"""Three layers of a graph network over a batch of molecules: embedded atoms and bonds, summed messages, and a mean over each molecule.

Source: Xu et al., "How Powerful are Graph Neural Networks?" (GIN), arXiv 1810.00826; bond embeddings from Hu et al., arXiv 1905.12265.
"""

import torch
import torch.nn as nn

GRAPHS, ATOMS, NEIGHBOURS, KINDS, BONDS, WIDTH, LAYERS = 512, 24, 2, 120, 6, 300, 3


class Layer(nn.Module):
    def __init__(self, width, bonds):
        super().__init__()
        self.bond, self.eps = nn.Embedding(bonds, width), nn.Parameter(torch.zeros(1))
        self.network = nn.Sequential(nn.Linear(width, 2 * width), nn.BatchNorm1d(2 * width), nn.ReLU(), nn.Linear(2 * width, width))
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x, source, target, bond):
        message = torch.relu(x[source] + self.bond(bond))
        gathered = torch.zeros_like(x).scatter_add(0, target[:, None].expand_as(message), message)
        return self.norm(self.network((1 + self.eps) * x + gathered))


class Model(nn.Module):
    def __init__(self, kinds, bonds, width, layers, graphs):
        super().__init__()
        self.graphs = graphs
        self.atom = nn.Embedding(kinds, width)
        self.layers = nn.ModuleList([Layer(width, bonds) for _ in range(layers)])
        self.head = nn.Linear(width, 1)

    def forward(self, atoms, edges, bonds, graph):
        """`atoms` (atoms,), `edges` (2, edges), `bonds` (edges,), `graph` (atoms,): the molecule of each atom -> (molecules,)."""
        x = self.atom(atoms)
        for layer in self.layers:
            x = torch.relu(layer(x, edges[0], edges[1], bonds))
        total = torch.zeros(self.graphs, x.shape[1], dtype=x.dtype, device=x.device).index_add(0, graph, x)
        count = torch.bincount(graph, minlength=self.graphs).clamp(min=1)
        return self.head(total / count[:, None].to(x.dtype))[:, 0]


def get_inputs():
    atoms = GRAPHS * ATOMS
    graph = torch.arange(GRAPHS).repeat_interleave(ATOMS)
    source = torch.arange(atoms).repeat_interleave(NEIGHBOURS)
    target = graph[source] * ATOMS + torch.randint(0, ATOMS, (atoms * NEIGHBOURS,))
    return [torch.randint(0, KINDS, (atoms,)), torch.stack((source, target)), torch.randint(0, BONDS, (atoms * NEIGHBOURS,)), graph]


def get_init_inputs():
    return [KINDS, BONDS, WIDTH, LAYERS, GRAPHS]
