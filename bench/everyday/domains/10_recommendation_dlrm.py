"""A recommendation model: embedding bags from 26 tables, a network over 13 numbers, dot products of all pairs of features, and a network on top.

Source: Naumov et al., "Deep Learning Recommendation Model for Personalization and Recommendation Systems" (DLRM), arXiv 1906.00091.
"""

import torch
import torch.nn as nn

BATCH, NUMBERS, TABLES, ROWS, WIDTH, BAG = 4096, 13, 26, 20000, 64, 4


class Model(nn.Module):
    def __init__(self, numbers, tables, rows, width):
        super().__init__()
        self.tables = nn.ModuleList([nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables)])
        self.bottom = nn.Sequential(nn.Linear(numbers, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, width), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(nn.Linear(width + pairs, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1))
        rows_of, columns_of = torch.tril_indices(tables + 1, tables + 1, offset=-1)
        self.register_buffer("first", rows_of, persistent=False)
        self.register_buffer("second", columns_of, persistent=False)

    def forward(self, numbers, items):
        """`numbers` (batch, 13), `items` (tables, batch, bag): row indices for each table."""
        dense = self.bottom(numbers)
        sparse = [table(items[at]) for at, table in enumerate(self.tables)]
        features = torch.stack([dense, *sparse], dim=1)  # (batch, tables + 1, width)
        products = torch.bmm(features, features.transpose(1, 2))
        pairs = products[:, self.first, self.second]
        return torch.sigmoid(self.top(torch.cat((dense, pairs), dim=1)))


def get_inputs():
    return [torch.rand(BATCH, NUMBERS), torch.randint(0, ROWS, (TABLES, BATCH, BAG))]


def get_init_inputs():
    return [NUMBERS, TABLES, ROWS, WIDTH]
