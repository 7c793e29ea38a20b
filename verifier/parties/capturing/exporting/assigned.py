"""Makes the exporter record buffers that forward assigns, such as `self.mean = 0.9 * self.mean + 0.1 * x.mean()`.

The exporter only sees assignments to buffers of the outermost module, and loses those of all others (torch 2.11 and 2.13). Here, forward's own
assignments take effect while it runs. When it ends, each assigned value is copied to the buffer that the module held before, which the exporter
records like any in-place change.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules.module import _global_buffer_registration_hooks as registration_hooks


def storing(model: torch.nn.Module, call: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that does the same as `call` but leaves every buffer of `model` as the same tensor, with the values that were assigned.
    That function raises `ValueError` if a buffer is assigned a tensor of another shape or type."""

    def stored(*tensors: Any) -> Any:
        held = [(path, module, dict(module._buffers)) for path, module in model.named_modules()]
        before = OrderedDict(registration_hooks)
        registration_hooks.clear()  # the exporter's own, which would record some of the assignments a second time
        try:
            returned = call(*tensors)
        finally:
            registration_hooks.update(before)
        for path, module, buffers in held:
            for name, buffer in buffers.items():
                value = module._buffers.get(name)
                if buffer is None or value is None or value is buffer:
                    continue
                if value.shape != buffer.shape or value.dtype != buffer.dtype:
                    raise ValueError(f"forward assigns a tensor of another shape or type to the buffer {path}{'.' if path else ''}{name}")
                buffer.copy_(value.detach() if value.requires_grad else value)
                module._buffers[name] = buffer
        return returned

    return stored
