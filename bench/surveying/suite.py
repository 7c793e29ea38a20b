"""The tasks for which landscapes are measured: the examples, in sizes that occupy a GPU, and further operators that are defined here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@dataclass(frozen=True)
class Subject:
    name: str
    what: str
    source: str


# For each example, the line that sets its sizes, and the line that replaces it on a GPU.
LARGER = {
    "attention": ("batch, tokens, features, heads = 4, 256, 128, 8", "batch, tokens, features, heads = 8, 512, 256, 8"),
    "cross_entropy": ("rows, classes = 768, 8192", "rows, classes = 2048, 16384"),
    "cumsum_scale": ("rows, columns = 2048, 2048", "rows, columns = 4096, 4096"),
    "depthwise_separable": ("outputs, height, width = 8, 32, 64, 56, 56", "outputs, height, width = 16, 64, 128, 56, 56"),
    "embedding_gate": ("features = 16, 256, 1000, 512", "features = 32, 512, 1000, 1024"),
    "group_norm_silu": ("height, width = 12, 32, 128, 64, 64", "height, width = 16, 32, 256, 64, 64"),
    "layer_norm_gelu": ("batch, tokens, features = 8, 512, 1024", "batch, tokens, features = 16, 1024, 1024"),
    "lenet5": ("batch, classes = 512, 10", "batch, classes = 4096, 10"),
    "lstm_cell_loop": ("batch, steps, inputs, hidden = 256, 16, 64, 128", "batch, steps, inputs, hidden = 256, 16, 64, 256"),
    "masked_pool": ("torch.rand(64, 64, 1024), torch.randint(1, 1025, (64,))", "torch.rand(128, 64, 1024), torch.randint(1, 1025, (128,))"),
    "residual_mlp": ("features, hidden = 16, 512, 128, 256", "features, hidden = 16, 1024, 256, 512"),
    "resnet_block": ("height, width = 16, 16, 56, 56", "height, width = 32, 64, 56, 56"),
    "rms_norm": ("batch, tokens, features = 6, 512, 2048", "batch, tokens, features = 8, 2048, 2048"),
    "softmax": ("rows, columns = 1536, 4096", "rows, columns = 4096, 8192"),
    "transformer_block": ("heads, hidden = 8, 128, 128, 4, 512", "heads, hidden = 16, 256, 256, 8, 1024"),
}

# name: (description, parameters, forward's arguments, forward's body, inputs on a GPU, inputs for trials on a CPU)
WRITTEN: dict[str, tuple[str, str, str, str, str, str]] = {
    "softmax_short_rows": (
        "softmax over many short rows", "", "x", "return torch.softmax(x, dim=-1)", "torch.rand(65536, 512)", "torch.rand(2048, 128)",
    ),
    "softmax_long_rows": (
        "softmax over a few very long rows", "", "x", "return torch.softmax(x, dim=-1)", "torch.rand(32, 524288)", "torch.rand(4, 65536)",
    ),
    "log_softmax_scaled": (
        "log-softmax of scaled scores", "", "x", "return torch.log_softmax(x * 0.125, dim=-1)", "torch.rand(8192, 4096)", "torch.rand(256, 1024)",
    ),
    "add_layer_norm": (
        "layer norm of a residual sum", "self.norm = nn.LayerNorm({last})", "x, y", "return self.norm(x + y)",
        "torch.rand(8192, 2048), torch.rand(8192, 2048)", "torch.rand(512, 512), torch.rand(512, 512)",
    ),
    "layer_norm_long_rows": (
        "layer norm over long rows", "self.norm = nn.LayerNorm({last})", "x", "return self.norm(x)",
        "torch.rand(1024, 16384)", "torch.rand(32, 8192)",
    ),
    "rms_norm_gate": (
        "RMS norm times a gate", "self.weight = nn.Parameter(torch.ones({last}))", "x, gate",
        "y = x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + 1e-6) * self.weight\n        return y * F.silu(gate)",
        "torch.rand(8192, 4096), torch.rand(8192, 4096)", "torch.rand(512, 512), torch.rand(512, 512)",
    ),
    "swiglu": (
        "SiLU gate of two halves", "", "a, b", "return F.silu(a) * b",
        "torch.rand(8192, 4096), torch.rand(8192, 4096)", "torch.rand(512, 512), torch.rand(512, 512)",
    ),
    "gelu_chain": (
        "a chain of pointwise functions", "self.bias = nn.Parameter(torch.rand({last}))", "x",
        "y = F.gelu(x + self.bias)\n        return torch.tanh(y) * 0.5 + torch.sigmoid(y)", "torch.rand(8192, 4096)", "torch.rand(512, 512)",
    ),
    "l2_normalise": (
        "rows scaled to length one", "", "x", "return x / x.pow(2).sum(dim=-1, keepdim=True).sqrt().clamp_min(1e-6)",
        "torch.rand(16384, 1024)", "torch.rand(512, 512)",
    ),
    "row_variance": (
        "mean and variance of rows", "", "x", "return x.mean(dim=-1), x.var(dim=-1)", "torch.rand(8192, 8192)", "torch.rand(256, 2048)",
    ),
    "mse_rows": (
        "mean square error of each row", "", "x, y", "return (x - y).pow(2).mean(dim=-1)",
        "torch.rand(8192, 4096), torch.rand(8192, 4096)", "torch.rand(256, 1024), torch.rand(256, 1024)",
    ),
    "kl_rows": (
        "Kullback-Leibler divergence of rows of scores", "", "x, y",
        "p = torch.softmax(x, dim=-1)\n        return (p * (torch.log_softmax(x, dim=-1) - torch.log_softmax(y, dim=-1))).sum(dim=-1)",
        "torch.rand(4096, 4096), torch.rand(4096, 4096)", "torch.rand(128, 1024), torch.rand(128, 1024)",
    ),
    "cosine_rows": (
        "cosine of pairs of rows", "", "x, y",
        "return (x * y).sum(dim=-1) / (x.pow(2).sum(dim=-1).sqrt() * y.pow(2).sum(dim=-1).sqrt())",
        "torch.rand(8192, 2048), torch.rand(8192, 2048)", "torch.rand(256, 1024), torch.rand(256, 1024)",
    ),
    "cumsum_rows": (
        "running sums along rows", "", "x", "return torch.cumsum(x - 0.5, dim=-1)", "torch.rand(2048, 16384)", "torch.rand(128, 2048)",
    ),
    "column_sums": (
        "sums over the first dimension", "", "x", "return (x * x).sum(dim=0)", "torch.rand(2048, 16384)", "torch.rand(256, 1024)",
    ),
}  # fmt: skip

SOURCE = '''"""{what}."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
{parameters}
    def forward(self, {arguments}):
        {body}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
'''


def subjects(device_kind: str) -> list[Subject]:
    """Returns all tasks in sizes for this kind of device."""
    found = [example(path, device_kind) for path in sorted(EXAMPLES.glob("*.py"))]
    return found + [written(name, device_kind) for name in WRITTEN]


def example(path: Path, device_kind: str) -> Subject:
    source = path.read_text()
    if device_kind == "cuda" and path.stem in LARGER:
        old, new = LARGER[path.stem]
        if old not in source:
            raise ValueError(f"{path.name} has other sizes than the suite of landscapes knows: mend LARGER")
        source = source.replace(old, new)
    return Subject(path.stem, source.split('"""')[1].strip().rstrip("."), source)


def written(name: str, device_kind: str) -> Subject:
    what, parameters, arguments, body, large, small = WRITTEN[name]
    inputs = large if device_kind == "cuda" else small
    last = inputs.split("torch.rand(")[1].split(")")[0].split(", ")[-1]
    parameters = f"        {parameters.format(last=last)}\n" if parameters else ""
    what = what[0].upper() + what[1:]
    return Subject(name, what, SOURCE.format(what=what, parameters=parameters, arguments=arguments, body=body, inputs=inputs))
