"""Two layers of a Fourier neural operator: complex weights mix the lowest frequencies of a field, in parallel with a pointwise path.

Source: Li et al., "Fourier Neural Operator for Parametric Partial Differential Equations", arXiv 2010.08895.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH, CHANNELS, SIZE, MODES = 16, 64, 128, 16


class Spectral(nn.Module):
    """Mixes frequencies. The complex weights are stored as pairs of reals."""

    def __init__(self, channels, modes):
        super().__init__()
        self.modes = modes
        self.low = nn.Parameter(torch.randn(channels, channels, modes, modes, 2) / channels)
        self.high = nn.Parameter(torch.randn(channels, channels, modes, modes, 2) / channels)

    def forward(self, x):
        batch, channels, height, width = x.shape
        m = self.modes
        spectrum = torch.fft.rfft2(x.float(), norm="ortho")
        out = torch.zeros(batch, channels, height, width // 2 + 1, dtype=spectrum.dtype, device=x.device)
        out[:, :, :m, :m] = torch.einsum("bixy,ioxy->boxy", spectrum[:, :, :m, :m], torch.view_as_complex(self.low.float()))
        out[:, :, -m:, :m] = torch.einsum("bixy,ioxy->boxy", spectrum[:, :, -m:, :m], torch.view_as_complex(self.high.float()))
        return torch.fft.irfft2(out, s=(height, width), norm="ortho").to(x.dtype)


class Model(nn.Module):
    def __init__(self, channels, modes):
        super().__init__()
        self.spectral = nn.ModuleList([Spectral(channels, modes) for _ in range(2)])
        self.pointwise = nn.ModuleList([nn.Conv2d(channels, channels, 1) for _ in range(2)])

    def forward(self, x):
        for spectral, pointwise in zip(self.spectral, self.pointwise, strict=True):
            x = F.gelu(spectral(x) + pointwise(x))
        return x


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIZE, SIZE)]


def get_init_inputs():
    return [CHANNELS, MODES]
