import torch
import torch.nn as nn


class Model(nn.Module):
    """Embeds tokens and their types; in the task's own inputs, all tokens have the first type."""

    def __init__(self, tokens, types, features):
        super().__init__()
        self.tokens = nn.Embedding(tokens, features)
        self.types = nn.Embedding(types, features)

    def forward(self, ids, types):
        return self.tokens(ids) + self.types(types)


def get_inputs():
    return [torch.randint(0, 1000, (8, 128)), torch.zeros(8, 128, dtype=torch.int64)]


def get_init_inputs():
    return [1000, 2, 64]
