import torch
import torch.nn as nn


class Model(nn.Module):
    """Filters every row with complex weights in the frequency domain; as constructed, they let everything pass."""

    def __init__(self, columns):
        super().__init__()
        self.filter = nn.Parameter(torch.ones(columns // 2 + 1, dtype=torch.complex64))

    def forward(self, x):
        return torch.fft.irfft(torch.fft.rfft(x) * self.filter, n=x.shape[-1])


def get_inputs():
    return [torch.randn(256, 512)]


def get_init_inputs():
    return [512]
