"""A mixture of experts with fixed capacity: tokens are sorted into one buffer per expert, processed as batched products, and gathered back.

Source: Lepikhin et al., "GShard", arXiv 2006.16668, with two gates and a shared expert as in Dai et al., "DeepSeekMoE", arXiv 2401.06066.
The router computes in float32 (Fedus et al., arXiv 2101.03961).
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

TOKENS, WIDTH, INNER, EXPERTS, CHOSEN, CAPACITY = 2048, 1024, 704, 16, 2, 320


class Model(nn.Module):
    def __init__(self, width, inner, experts, chosen, capacity):
        super().__init__()
        self.experts, self.chosen, self.capacity = experts, chosen, capacity
        self.router = nn.Linear(width, experts, bias=False)
        self.gate_up = nn.Parameter(torch.randn(experts, width, 2 * inner) * width**-0.5)
        self.down = nn.Parameter(torch.randn(experts, inner, width) * inner**-0.5)
        self.shared_gate_up = nn.Linear(width, 2 * inner, bias=False)
        self.shared_down = nn.Linear(inner, width, bias=False)

    def forward(self, tokens):
        count, width = tokens.shape
        scores = F.softmax(F.linear(tokens.float(), self.router.weight.float()), dim=-1)
        gates, picked = scores.topk(self.chosen, dim=-1)
        gates = gates / gates.sum(dim=-1, keepdim=True)
        chosen = F.one_hot(picked.reshape(-1), self.experts)  # (count * chosen, experts)
        place = ((chosen.cumsum(dim=0) - 1) * chosen).sum(dim=-1)
        kept = place < self.capacity
        slot = picked.reshape(-1) * self.capacity + place.clamp(max=self.capacity - 1)
        source = tokens.repeat_interleave(self.chosen, dim=0) * kept[:, None].to(tokens.dtype)
        buffer = torch.zeros(self.experts * self.capacity, width, dtype=tokens.dtype, device=tokens.device)
        buffer = buffer.index_add(0, slot, source).view(self.experts, self.capacity, width)
        gate, up = torch.bmm(buffer, self.gate_up).chunk(2, dim=-1)
        computed = torch.bmm(F.silu(gate) * up, self.down).view(-1, width)
        weight = (gates.reshape(-1) * kept).to(tokens.dtype)
        routed = (computed[slot] * weight[:, None]).view(count, self.chosen, width).sum(dim=1)
        gate, up = self.shared_gate_up(tokens).chunk(2, dim=-1)
        return routed + self.shared_down(F.silu(gate) * up)


def get_inputs():
    return [torch.randn(TOKENS, WIDTH)]


def get_init_inputs():
    return [WIDTH, INNER, EXPERTS, CHOSEN, CAPACITY]
