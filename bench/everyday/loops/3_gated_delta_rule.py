"""Linear attention with the gated delta rule over 256 tokens: the state decays, is corrected by the error of its prediction, and is read.

Source: Yang et al., "Gated Delta Networks: Improving Mamba2 with Delta Rule", arXiv 2412.06464, equation 10.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH, LENGTH, WIDTH, HEADS, FEATURES = 2, 256, 1024, 8, 128


class Model(nn.Module):
    def __init__(self, width, heads, features):
        super().__init__()
        self.heads, self.features = heads, features
        self.qkv = nn.Linear(width, 3 * heads * features, bias=False)
        self.gates = nn.Linear(width, 2 * heads)
        self.out = nn.Linear(heads * features, width, bias=False)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, self.features).unbind(dim=2)
        q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        write, forget = self.gates(x).view(batch, length, 2, self.heads).unbind(dim=2)
        write, forget = torch.sigmoid(write), torch.sigmoid(forget + 4)
        state = x.new_zeros(batch, self.heads, self.features, self.features)
        outputs = []
        for t in range(length):
            state = state * forget[:, t, :, None, None]
            predicted = torch.einsum("bhkv,bhk->bhv", state, k[:, t])
            change = (v[:, t] - predicted) * write[:, t, :, None]
            state = state + k[:, t, :, :, None] * change[:, :, None, :]
            outputs.append(torch.einsum("bhkv,bhk->bhv", state, q[:, t]))
        return self.out(torch.stack(outputs, dim=1).flatten(2))


def get_inputs():
    return [torch.randn(BATCH, LENGTH, WIDTH)]


def get_init_inputs():
    return [WIDTH, HEADS, FEATURES]
