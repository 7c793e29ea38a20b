import torch
import torch.nn as nn


class Model(nn.Module):
    """Weight-only int8 linear layer: per-output-channel scales, fp16 activations."""

    def __init__(self, in_features, out_features):
        super().__init__()
        self.register_buffer("qweight", torch.randint(-127, 128, (out_features, in_features), dtype=torch.int8))
        self.register_buffer("scales", (torch.rand(out_features) * 0.01 + 0.001).to(torch.float16))

    def forward(self, x):
        w = self.qweight.to(torch.float16) * self.scales[:, None]
        return x @ w.t()


def get_inputs():
    return [torch.randn(512, 4096, dtype=torch.float16)]


def get_init_inputs():
    return [4096, 4096]
