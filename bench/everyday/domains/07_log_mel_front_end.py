"""The front end of a speech recogniser: a windowed Fourier transform, mel bands, a clipped logarithm, and two strided convolutions.

Source: Radford et al., "Robust Speech Recognition via Large-Scale Weak Supervision" (Whisper), arXiv 2212.04356, section 2.2.
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH, SAMPLES, WINDOW, HOP, BANDS, WIDTH = 8, 160000, 400, 160, 80, 512


def mel_bands(bands, bins, rate=16000):
    """Returns triangular filters on the mel scale (bands, bins)."""
    top = 2595 * math.log10(1 + rate / 2 / 700)
    edges = 700 * (10 ** (torch.linspace(0, top, bands + 2) / 2595) - 1)
    places = torch.linspace(0, rate / 2, bins)
    rising = (places - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - places) / (edges[2:] - edges[1:-1])[:, None]
    return torch.minimum(rising, falling).clamp(min=0)


class Model(nn.Module):
    def __init__(self, window, hop, bands, width):
        super().__init__()
        self.size, self.hop = window, hop
        self.register_buffer("window", torch.hann_window(window))
        self.register_buffer("bands", mel_bands(bands, window // 2 + 1))
        self.conv1 = nn.Conv1d(bands, width, 3, padding=1)
        self.conv2 = nn.Conv1d(width, width, 3, stride=2, padding=1)

    def forward(self, sound):
        spectrum = torch.stft(sound, self.size, self.hop, window=self.window, return_complex=True)
        power = spectrum[..., :-1].abs().square()
        logs = torch.clamp(self.bands @ power, min=1e-10).log10()
        logs = torch.maximum(logs, logs.amax(dim=(1, 2), keepdim=True) - 8.0)
        x = F.gelu(self.conv1((logs + 4.0) / 4.0))
        return F.gelu(self.conv2(x)).transpose(1, 2)


def get_inputs():
    return [torch.randn(BATCH, SAMPLES) * 0.1]


def get_init_inputs():
    return [WINDOW, HOP, BANDS, WIDTH]
