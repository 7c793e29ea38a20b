import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Top-2 mixture of experts with SwiGLU experts, bf16."""

    def __init__(self, hidden: int, inter: int, experts: int, top_k: int):
        super().__init__()
        self.experts, self.top_k = experts, top_k
        self.router = nn.Linear(hidden, experts, bias=False, dtype=torch.bfloat16)
        self.w13 = nn.Parameter(torch.randn(experts, 2 * inter, hidden, dtype=torch.bfloat16) * hidden**-0.5)
        self.w2 = nn.Parameter(torch.randn(experts, hidden, inter, dtype=torch.bfloat16) * inter**-0.5)

    def forward(self, x):
        probs = self.router(x).float().softmax(-1)
        weight, index = probs.topk(self.top_k, dim=-1)
        weight = weight / weight.sum(-1, keepdim=True)
        out = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
        for e in range(self.experts):
            token, slot = torch.where(index == e)
            h = x[token] @ self.w13[e].t()
            gate, up = h.chunk(2, dim=-1)
            y = (F.silu(gate) * up) @ self.w2[e].t()
            out.index_add_(0, token, y.float() * weight[token, slot, None])
        return out.to(x.dtype)


def get_inputs():
    return [torch.randn(2048, 1024, dtype=torch.bfloat16)]


def get_init_inputs():
    return [1024, 1024, 8, 2]
