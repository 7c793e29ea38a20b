"""A triangle update of a protein's pair representation: gated products over the third residue, then attention along rows with a pair bias.

Source: Jumper et al., "Highly accurate protein structure prediction with AlphaFold", Nature 596 (2021), supplementary algorithms 11 and 13.
"""

import torch
import torch.nn as nn

RESIDUES, WIDTH, INNER, HEADS, FEATURES = 256, 128, 128, 4, 32


class Model(nn.Module):
    def __init__(self, width, inner, heads, features):
        super().__init__()
        self.heads, self.features = heads, features
        self.norm_in, self.norm_mid, self.norm_row = nn.LayerNorm(width), nn.LayerNorm(inner), nn.LayerNorm(width)
        self.left, self.right = nn.Linear(width, 2 * inner), nn.Linear(width, 2 * inner)
        self.out, self.gate = nn.Linear(inner, width), nn.Linear(width, width)
        self.qkv, self.bias = nn.Linear(width, 3 * heads * features, bias=False), nn.Linear(width, heads, bias=False)
        self.row_gate, self.row_out = nn.Linear(width, heads * features), nn.Linear(heads * features, width)

    def multiply(self, pair):
        x = self.norm_in(pair)
        left, left_gate = self.left(x).chunk(2, dim=-1)
        right, right_gate = self.right(x).chunk(2, dim=-1)
        product = torch.einsum("bikc,bjkc->bijc", left * torch.sigmoid(left_gate), right * torch.sigmoid(right_gate))
        return self.out(self.norm_mid(product)) * torch.sigmoid(self.gate(x))

    def attend(self, pair):
        x = self.norm_row(pair)
        batch, rows, columns, _ = x.shape
        q, k, v = self.qkv(x).view(batch, rows, columns, 3, self.heads, self.features).unbind(dim=3)
        scores = torch.einsum("bijhf,bikhf->bhijk", q, k) * self.features**-0.5 + self.bias(x).permute(0, 3, 1, 2)[:, :, None]
        context = torch.einsum("bhijk,bikhf->bijhf", torch.softmax(scores, dim=-1), v).flatten(-2)
        return self.row_out(torch.sigmoid(self.row_gate(x)) * context)

    def forward(self, pair):
        """`pair` (batch, residues, residues, width)."""
        pair = pair + self.multiply(pair)
        return pair + self.attend(pair)


def get_inputs():
    return [torch.randn(1, RESIDUES, RESIDUES, WIDTH)]


def get_init_inputs():
    return [WIDTH, INNER, HEADS, FEATURES]
