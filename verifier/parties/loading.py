"""Loads untrusted source code as a module, and examines the model that it defines."""

# sandboxed: imports tasks and programs

from __future__ import annotations

import importlib.util
import os
import random
import sys
from types import ModuleType

import torch
from torch.utils._pytree import tree_leaves

from verifier.layout import NAMES, unsupported

IMPORT_SEED = 0


def load_source(name: str, source: str, home: str) -> ModuleType:
    """Imports untrusted source code as a module called `name`, from a file, because `inspect`, Triton and torch.jit need one."""
    path = os.path.join(home, f"{name}.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write(source)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    torch.manual_seed(IMPORT_SEED)  # the task and the program draw the same random numbers while they are imported
    random.seed(IMPORT_SEED)
    spec.loader.exec_module(module)
    return module


def unusable(model: torch.nn.Module) -> str:
    """Explains why a model's state cannot be passed to a program; empty if it can."""
    if any(isinstance(value, (torch.nn.UninitializedParameter, torch.nn.UninitializedBuffer)) for value in [*model.parameters(), *model.buffers()]):
        return "the model has lazy modules, which have no weights before their first call; call it once in its constructor"
    for name, value in model.state_dict().items():
        if not isinstance(value, torch.Tensor) and not name.endswith("_extra_state"):
            said = "is no tensor but of type " + type(value).__name__
            return f"{name} of the state dict {said}, as in quantised modules of torch.ao; keep the integer weights and their scales as buffers"
        if isinstance(value, torch.Tensor) and value.layout is not torch.strided:
            return f"{name} of the state dict has the layout {value.layout}, which is not supported; keep its indices and values as buffers"
        if isinstance(value, torch.Tensor) and value.dtype not in NAMES:
            return f"{name} of the state dict has the dtype {value.dtype}, which is not supported{unsupported(value.dtype)}"
        if isinstance(value, (list, tuple, dict)) and any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(value)):
            word = type(value).__name__
            return f"{name} of the state dict is a {word} of tensors, which no program can be given; keep its tensors as parameters or buffers"
    return ""
