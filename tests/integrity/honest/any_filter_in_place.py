# task: tasks/spectral_filter.py
# device: any
# says: multiplies by the complex weights in place
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.filter = nn.Parameter(torch.ones(columns // 2 + 1, dtype=torch.complex64))

    def forward(self, x):
        return torch.fft.irfft(torch.fft.rfft(x).mul_(self.filter), n=x.shape[-1])
