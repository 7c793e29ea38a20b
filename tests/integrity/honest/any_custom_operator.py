# task: tasks/across.py
# device: any
# says: torch.library.custom_op with a fake kernel, a decorator of its own and a dataclass for options
import functools
from dataclasses import dataclass

import torch
import torch.nn as nn


@dataclass(frozen=True)
class Options:
    slope: float = 1.0
    inplace: bool = True


def documented(text):
    """A decorator that only sets a docstring."""

    def decorate(function):
        @functools.wraps(function)
        def call(*args, **kwargs):
            return function(*args, **kwargs)

        call.__doc__ = text
        return call

    return decorate


@torch.library.custom_op("stitch_honest::shifted_silu", mutates_args=())
def shifted_silu(x: torch.Tensor, bias: torch.Tensor, slope: float) -> torch.Tensor:
    shifted = x + bias
    return shifted.mul_(torch.sigmoid(shifted * slope))


@shifted_silu.register_fake
def _(x, bias, slope):
    return torch.empty_like(x)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(features))
        self.options = Options()

    @documented("x + bias, times its sigmoid")
    def forward(self, x):
        return shifted_silu(x, self.bias, self.options.slope)
