"""The building blocks of synthetic tasks. Each states its requirements, the lines that it adds to the task, and its output shape."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

Shape = tuple[str, ...]  # names of sizes: ("batch", "features")

ROWS: Shape = ("batch", "features")
TOKENS: Shape = ("batch", "tokens", "features")
IMAGE: Shape = ("batch", "channels", "height", "width")


@dataclass(frozen=True)
class Step:
    """One operator of a task. `parameters` are lines of the constructor, and `line` computes the new `x`."""

    name: str
    family: str
    line: str
    out: Shape
    parameters: tuple[str, ...] = ()
    second: str = ""  # how get_inputs creates `y`
    helpers: tuple[str, ...] = ()  # lines before `line`


Maker = Callable[[Shape, random.Random, int], Step | None]

POINTWISE = {
    "relu": "torch.relu(x)",
    "gelu": "F.gelu(x)",
    "gelu_tanh": 'F.gelu(x, approximate="tanh")',
    "silu": "F.silu(x)",
    "tanh": "torch.tanh(x)",
    "sigmoid": "torch.sigmoid(x)",
    "softplus": "F.softplus(x)",
    "elu": "F.elu(x, alpha={c})",
    "hardswish": "F.hardswish(x)",
    "hardsigmoid": "F.hardsigmoid(x)",
    "leaky_relu": "F.leaky_relu(x, {s})",
    "mish": "F.mish(x)",
    "selu": "F.selu(x)",
    "softsign": "F.softsign(x)",
    "hardtanh": "F.hardtanh(x, -{c}, {c})",
    "relu6": "F.relu6(x)",
    "sin": "torch.sin(x)",
    "cos": "torch.cos(x)",
    "atan": "torch.atan(x)",
    "absolute": "torch.abs(x)",
    "square": "x * x",
    "bell": "torch.exp(-x * x)",
    "decay": "torch.exp(-torch.abs(x))",
    "log1p": "torch.log1p(torch.abs(x))",
    "root": "torch.sqrt(x * x + {s})",
    "clamp": "torch.clamp(x, -{c}, {c})",
    "clamp_min": "torch.clamp(x, min=-{s})",
    "scale": "x * {c}",
    "shift": "x + {c}",
    "affine": "x * {c} - {s}",
    "reverse": "{c} - x",
    "swish_beta": "x * torch.sigmoid({c} * x)",
    "rational": "x / (1.0 + torch.abs(x))",
    "cube": "x * x * x * {s}",
    "where_positive": "torch.where(x > 0, x, x * {s})",
    "threshold": "torch.where(x > {s}, x, torch.zeros_like(x))",
    "maximum": "torch.maximum(x, x * {s})",
    "erf": "torch.erf(x)",
    "logsigmoid": "F.logsigmoid(x)",
    "tanhshrink": "F.tanhshrink(x)",
}
REDUCTIONS = {
    "sum": "torch.sum(x, dim={d}{k})",
    "mean": "torch.mean(x, dim={d}{k})",
    "amax": "torch.amax(x, dim={d}{k})",
    "amin": "torch.amin(x, dim={d}{k})",
    "logsumexp": "torch.logsumexp(x, dim={d}{k})",
    "variance": "torch.var(x, dim={d}, unbiased=False{k})",
    "deviation": "torch.std(x, dim={d}{k})",
    "norm": "torch.linalg.vector_norm(x, dim={d}{k})",
    "mean_square": "torch.mean(x * x, dim={d}{k})",
    "mean_abs": "torch.mean(torch.abs(x), dim={d}{k})",
    "range": "torch.amax(x, dim={d}{k}) - torch.amin(x, dim={d}{k})",
}
NORMS = {
    "l2": "x / (torch.linalg.vector_norm(x, dim={d}, keepdim=True) + {e})",
    "l1": "x / (torch.sum(torch.abs(x), dim={d}, keepdim=True) + {e})",
    "max_abs": "x / (torch.amax(torch.abs(x), dim={d}, keepdim=True) + {e})",
    "standardise": "(x - torch.mean(x, dim={d}, keepdim=True)) / (torch.std(x, dim={d}, keepdim=True) + {e})",
    "centre": "x - torch.mean(x, dim={d}, keepdim=True)",
    "rms": "x * torch.rsqrt(torch.mean(x * x, dim={d}, keepdim=True) + {e})",
    "layer": "F.layer_norm(x, (self.features,), eps={e})",
    "min_max": "(x - torch.amin(x, dim={d}, keepdim=True)) / (torch.amax(x, dim={d}, keepdim=True) - torch.amin(x, dim={d}, keepdim=True) + {e})",
}
SOFTMAXES = {
    "softmax": "torch.softmax(x, dim={d})",
    "log_softmax": "F.log_softmax(x, dim={d})",
    "softmin": "F.softmin(x, dim={d})",
    "softmax_tempered": "torch.softmax(x / {c}, dim={d})",
    "softmax_centred": "torch.softmax(x - torch.mean(x, dim={d}, keepdim=True), dim={d})",
    "gated_softmax": "x * torch.softmax(x, dim={d})",
    "cumulative": "torch.cumsum(x, dim={d})",
}
LOSSES = {
    "mse": ("F.mse_loss(x, y)", "torch.randn"),
    "l1_loss": ("F.l1_loss(x, y)", "torch.randn"),
    "smooth_l1": ("F.smooth_l1_loss(x, y, beta={c})", "torch.randn"),
    "huber": ("F.huber_loss(x, y, delta={c})", "torch.randn"),
    "bce": ("F.binary_cross_entropy_with_logits(x, y)", "torch.rand"),
    "kl": ("F.kl_div(F.log_softmax(x, dim=-1), torch.softmax(y, dim=-1), reduction=\"batchmean\")", "torch.randn"),
    "cosine": ("1.0 - torch.mean(F.cosine_similarity(x, y, dim=-1))", "torch.randn"),
    "hinge": ("torch.mean(torch.clamp(1.0 - x * y, min=0.0))", "torch.randn"),
    "log_cosh": ("torch.mean(torch.log(torch.cosh(torch.clamp(x - y, -{c}, {c}))))", "torch.randn"),
    "poisson": ("torch.mean(torch.exp(torch.clamp(x, max={c})) - y * x)", "torch.rand"),
    "gap": ("torch.sum(torch.square(torch.mean(x, dim=-1) - torch.mean(y, dim=-1)))", "torch.randn"),
}  # fmt: skip


def numbers(rng: random.Random) -> dict[str, str]:
    return {
        "c": f"{rng.choice([0.5, 0.7, 1.5, 2.0, 2.5, 3.0])}",
        "s": f"{rng.choice([0.01, 0.05, 0.1, 0.2, 0.25])}",
        "e": rng.choice(["1e-5", "1e-6"]),
    }


def pointwise(shape: Shape, rng: random.Random, at: int) -> Step:
    name = rng.choice(list(POINTWISE))
    return Step(name, "pointwise", POINTWISE[name].format(**numbers(rng)), shape)


def with_parameter(shape: Shape, rng: random.Random, at: int) -> Step:
    """Adds one parameter per feature, or per channel of an image."""
    size, view = (shape[1], f".view(1, -1{', 1' * (len(shape) - 2)})") if shape[1] == "channels" else (shape[-1], "")
    name = rng.choice(["weight", "bias", "gate", "prelu"])
    parameter = f"self.p{at} = nn.Parameter(torch.{'ones' if name in ('weight', 'gate') else 'zeros'}({size}))"
    own = f"self.p{at}{view}"
    line = {"weight": f"x * {own}", "bias": f"x + {own}", "gate": f"x * torch.sigmoid({own})", "prelu": f"torch.where(x > 0, x, x * {own})"}[name]
    return Step(name, "parameter", line, shape, (parameter,))


def residual(shape: Shape, rng: random.Random, at: int) -> Step | None:
    """Adds the result of an earlier step. The chain ensures that there is a result of this shape."""
    name = rng.choice(["residual", "gated_residual", "weighted_residual"])
    lines = {"residual": "x + kept", "gated_residual": "x * torch.sigmoid(kept)", "weighted_residual": "x + {c} * kept"}
    return Step(name, "residual", lines[name].format(**numbers(rng)), shape)


def norm(shape: Shape, rng: random.Random, at: int) -> Step | None:
    name = rng.choice(list(NORMS))
    d = "1" if shape[1] == "channels" else "-1"
    if name == "layer" and shape[-1] != "features":
        return None
    parameters = ("self.features = features",) if name == "layer" else ()
    return Step(name, "norm", NORMS[name].format(d=d, **numbers(rng)), shape, parameters)


def softmax(shape: Shape, rng: random.Random, at: int) -> Step:
    name = rng.choice(list(SOFTMAXES))
    return Step(name, "softmax", SOFTMAXES[name].format(d="1" if shape[1] == "channels" else "-1", **numbers(rng)), shape)


def reduction(shape: Shape, rng: random.Random, at: int) -> Step | None:
    if len(shape) < 2:
        return None
    name, kept = rng.choice(list(REDUCTIONS)), rng.random() < 0.3
    axis = rng.choice([len(shape) - 1, 1]) if len(shape) > 2 else 1
    out = tuple("1" if i == axis else size for i, size in enumerate(shape)) if kept else tuple(size for i, size in enumerate(shape) if i != axis)
    line = REDUCTIONS[name].format(d=axis, k=", keepdim=True" if kept else "")
    return Step(name, "reduction", line, out)


def product(shape: Shape, rng: random.Random, at: int) -> Step | None:
    if shape not in (ROWS, TOKENS):
        return None
    name = rng.choice(["linear", "matrix", "gated_linear", "gram"] if shape == TOKENS else ["linear", "matrix", "gated_linear"])
    if name == "gram":
        line = "torch.softmax(torch.bmm(x, x.transpose(1, 2)) / features_root, dim=-1) @ x"
        return Step(name, "product", line, shape, helpers=("features_root = x.shape[-1] ** 0.5",))
    made = f"self.m{at} = nn.Linear(features, features, bias={name != 'matrix'})"
    line = f"self.m{at}(x)" if name != "gated_linear" else f"x * torch.sigmoid(self.m{at}(x))"
    return Step(name, "product", line, shape, (made,))


def loss(shape: Shape, rng: random.Random, at: int) -> Step | None:
    if len(shape) < 2 or "1" in shape:
        return None
    name = rng.choice(list(LOSSES))
    line, made = LOSSES[name]
    return Step(name, "loss", line.format(**numbers(rng)), (), second=f"{made}({', '.join(shape)})")


# The weights determine how often operators are drawn. Pointwise operators are drawn most often because they offer the most opportunities for fusion.
MAKERS: tuple[tuple[Maker, int], ...] = ((pointwise, 6), (with_parameter, 2), (residual, 2), (norm, 2), (softmax, 1), (product, 1))
ENDS: tuple[tuple[Maker | None, int], ...] = ((None, 5), (reduction, 3), (loss, 2))
