"""One token over a paged cache: a table lists the pages of a shared pool that hold a sequence's keys and values.

Source: Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention", arXiv 2309.06180.
"""

import torch
import torch.nn as nn

BATCH, PAGES, PAGE, HEADS, GROUPS, FEATURES = 16, 128, 16, 32, 8, 128
POOL = BATCH * PAGES


class Model(nn.Module):
    def __init__(self, heads, groups, features):
        super().__init__()
        self.heads, self.groups, self.features = heads, groups, features

    def forward(self, query, key_pool, value_pool, table, lengths):
        """`query` (batch, heads, features), pools (pages, page, groups, features), `table` (batch, pages of a sequence), `lengths` (batch,)."""
        batch = query.shape[0]
        keys = key_pool[table].reshape(batch, -1, self.groups, self.features)
        values = value_pool[table].reshape(batch, -1, self.groups, self.features)
        grouped = query.view(batch, self.groups, self.heads // self.groups, self.features)
        scores = torch.einsum("bghf,btgf->bght", grouped, keys) * self.features**-0.5
        past = torch.arange(keys.shape[1], device=query.device) >= lengths[:, None]
        scores = scores.masked_fill(past[:, None, None], float("-inf"))
        weights = torch.softmax(scores.float(), dim=-1).to(query.dtype)
        return torch.einsum("bght,btgf->bghf", weights, values).reshape(batch, self.heads, self.features)


def get_inputs():
    pool = (POOL, PAGE, GROUPS, FEATURES)
    table = torch.randperm(POOL).view(BATCH, PAGES)
    return [
        torch.randn(BATCH, HEADS, FEATURES),
        torch.randn(pool),
        torch.randn(pool),
        table,
        torch.randint(PAGES * PAGE // 2, PAGES * PAGE, (BATCH,)),
    ]


def get_init_inputs():
    return [HEADS, GROUPS, FEATURES]
