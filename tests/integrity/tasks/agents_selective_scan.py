import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Mamba's selective scan (S6), sequential reference."""

    def __init__(self, d_inner: int, d_state: int):
        super().__init__()
        self.A_log = nn.Parameter(torch.log(torch.arange(1, d_state + 1, dtype=torch.float32)).repeat(d_inner, 1))
        self.D = nn.Parameter(torch.ones(d_inner))

    def forward(self, u, delta, B, C):
        delta = F.softplus(delta)
        A = -torch.exp(self.A_log)
        h = u.new_zeros(u.shape[0], u.shape[2], A.shape[1])
        ys = []
        for t in range(u.shape[1]):
            dt = delta[:, t, :, None]
            h = torch.exp(dt * A) * h + (dt * u[:, t, :, None]) * B[:, t, None, :]
            ys.append((h * C[:, t, None, :]).sum(-1))
        return torch.stack(ys, dim=1) + u * self.D


def get_inputs():
    b, l, d, n = 8, 64, 1024, 16
    return [torch.randn(b, l, d), torch.randn(b, l, d) - 1.0, torch.randn(b, l, n), torch.randn(b, l, n)]


def get_init_inputs():
    return [1024, 16]
