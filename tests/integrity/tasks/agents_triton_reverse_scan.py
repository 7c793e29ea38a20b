import torch
import torch.nn as nn


class Model(nn.Module):
    """Discounted returns: r[t] + gamma * (1 - done[t]) * return[t + 1], from the last step to the first."""

    def __init__(self, gamma):
        super().__init__()
        self.gamma = gamma

    def forward(self, reward, done):
        keep = self.gamma * (~done).to(reward.dtype)
        out = torch.empty_like(reward)
        carry = torch.zeros_like(reward[:, 0])
        for t in range(reward.shape[1] - 1, -1, -1):
            carry = reward[:, t] + keep[:, t] * carry
            out[:, t] = carry
        return out


def get_inputs():
    return [torch.randn(4096, 128), torch.rand(4096, 128) < 0.05]


def get_init_inputs():
    return [0.99]
