import torch
import torch.nn as nn


class Model(nn.Module):
    """Sums the embeddings of the tokens that occur in a text."""

    def __init__(self, tokens, width):
        super().__init__()
        self.table = nn.Parameter(torch.randn(tokens, width))

    def forward(self, text):
        return self.table[text].sum(dim=1)


def get_inputs():
    return [torch.stack([torch.randperm(512)[:64] for _ in range(32)])]


def get_init_inputs():
    return [512, 64]
