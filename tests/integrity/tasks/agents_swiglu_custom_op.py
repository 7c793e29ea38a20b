import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """SwiGLU feed-forward: down(silu(gate(x)) * up(x)), bf16."""

    def __init__(self, d_model: int, d_ff: int):
        super().__init__()
        self.gate_up = nn.Linear(d_model, 2 * d_ff, bias=False, dtype=torch.bfloat16)
        self.down = nn.Linear(d_ff, d_model, bias=False, dtype=torch.bfloat16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


tokens, d_model, d_ff = 4096, 1024, 2816


def get_inputs():
    return [torch.randn(tokens, d_model, dtype=torch.bfloat16)]


def get_init_inputs():
    return [d_model, d_ff]
