"""Runs forward and backward as one call, for measurements with `backward`. The call computes the gradients of floating-point inputs and parameters
for given output gradients. The same function runs the task (also in fp64) and the program, which may define its own `torch.autograd.Function`."""

# sandboxed: calls the models that tasks and programs define

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import torch

from verifier.float8 import continuous
from verifier.layout import decode, encode
from verifier.parties.naming import resolver


class NoGradient(RuntimeError):
    """Raised when gradients are requested but the model does not support autograd."""


def sources(model: Any, inputs: list[Any]) -> tuple[list[Any], dict[str, torch.Tensor]]:
    """Returns `inputs` with every floating-point tensor as a leaf that requires a gradient (not copied), and all tensors that may receive a gradient,
    by name."""
    tensors: list[torch.Tensor] = []
    tree = encode(list(inputs), tensors, whole=True)
    leaves = [tensor.detach().requires_grad_(continuous(tensor)) for tensor in tensors]
    named = {f"input {index}": leaf for index, leaf in enumerate(leaves) if leaf.requires_grad}
    own = getattr(model, "_orig_mod", model)  # the original module of a torch.compile wrapper
    resolve = resolver(sys.modules.get(type(own).__module__))
    named.update((name, value) for name, value in own.named_parameters(remove_duplicate=False) if value.requires_grad and continuous(value))
    return decode(tree, leaves, resolve=resolve), named


def forward_backward(model: Any, inputs: list[Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """Runs forward and backward. The last element of `inputs` holds the gradients of the outputs with the indices `wanted["outputs"]`;
    `wanted["sources"]` holds names as returned by `sources`; `wanted["called"]` holds the names of their gradients, if different. Returns outputs and
    gradients; the gradient of a tensor that the model does not use is zero. Raises `NoGradient`."""
    *rest, gradients = inputs
    with torch.enable_grad():
        arguments, named = sources(model, rest)
        output = model(*arguments)
        tensors: list[torch.Tensor] = []
        _leaves(output, tensors)
        missing = [name for name in wanted["sources"] if name not in named]
        if missing:
            raise NoGradient(f"no parameter {missing[0]!r} that wants a gradient; with backward, it is compared by this name")
        if any(index >= len(tensors) for index in wanted["outputs"]):
            raise NoGradient("the program has fewer outputs than the task")
        reached = [tensors[index] for index in wanted["outputs"]]
        if not all(tensor.requires_grad for tensor in reached):
            raise NoGradient(
                "the outputs carry no gradient: with backward, forward has to support autograd (a torch.autograd.Function around own kernels)"
            )
        wished = [named[name] for name in wanted["sources"]]
        found = torch.autograd.grad(reached, wished, gradients, allow_unused=True)
    pairs = zip(wanted.get("called", wanted["sources"]), wished, found, strict=True)
    given = {name: torch.zeros_like(leaf) if grad is None else grad.detach() for name, leaf, grad in pairs}
    return {"output": output, "gradients": given}


def reachable(model: Any, inputs: list[Any]) -> dict[str, Any]:
    """Returns which outputs carry gradients, and which inputs and parameters receive them. Raises `NoGradient` if there are none."""
    with torch.enable_grad():
        arguments, named = sources(model, inputs)
        tensors: list[torch.Tensor] = []
        _leaves(model(*arguments), tensors)
        outputs = [index for index, tensor in enumerate(tensors) if tensor.requires_grad]
        if not outputs:
            raise NoGradient("no output of the task carries a gradient, so no backward can be measured")
        reached = [tensors[index] for index in outputs]
        found = torch.autograd.grad(reached, list(named.values()), [torch.ones_like(tensor) for tensor in reached], allow_unused=True)
    return {"outputs": outputs, "sources": [name for name, grad in zip(named, found, strict=True) if grad is not None]}


def _leaves(value: Any, tensors: list[torch.Tensor]) -> None:
    """Collects the tensors of a value in the order in which `layout.encode` numbers them, with their autograd history."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
    elif isinstance(value, float):
        tensors.append(torch.tensor(value, dtype=torch.float32))
    elif isinstance(value, (list, tuple)):
        for item in value:
            _leaves(item, tensors)
    elif isinstance(value, dict):
        for item in value.values():
            _leaves(item, tensors)
    elif hasattr(value, "to_tuple"):
        _leaves(value.to_tuple(), tensors)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            _leaves(getattr(value, field.name), tensors)
