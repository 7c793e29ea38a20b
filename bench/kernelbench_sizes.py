"""Computes the sizes of KernelBench's models.

Records the bytes of inputs, outputs and state, and the peak memory of a call in addition to its outputs (`between`), from tensors without data;
`kernelbench_self.py` and `bench.sweep` use them to plan memory.

python bench/kernelbench_sizes.py CHECKOUT --out bench/kernelbench-sizes.json      (two tasks need einops)
"""

# sandboxed: imports tasks; run it where KernelBench itself may run

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import warnings
import weakref
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Held(TorchDispatchMode):
    """Measures the peak bytes (`most`) of the tensors that are created while it is active; tensors in `known` do not count."""

    def __init__(self, known: Any):
        super().__init__()
        self.most = self.now = 0
        self.there = {value.untyped_storage()._cdata for value in tree_leaves(known) if isinstance(value, torch.Tensor)}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        for value in tree_leaves(made):
            if isinstance(value, torch.Tensor):
                storage = value.untyped_storage()
                if storage._cdata not in self.there:
                    self.there.add(storage._cdata)
                    self.now += storage.nbytes()
                    self.most = max(self.most, self.now)
                    weakref.finalize(storage, self._gone, storage._cdata, storage.nbytes())
        return made

    def _gone(self, storage: int, size: int) -> None:
        self.there.discard(storage)
        self.now -= size


def nbytes(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    return sum(map(nbytes, value)) if isinstance(value, (list, tuple)) else 0


def measure(path: Path, device: str = "meta") -> dict[str, int]:
    """Measures a task. Propagates any exception that the task raises. A few tasks read tensor values, which do not exist here."""
    spec = importlib.util.spec_from_file_location("task", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with torch.device(device), torch.no_grad():
        spec.loader.exec_module(module)
        inputs = module.get_inputs()
        model = module.Model(*module.get_init_inputs())
        state = list(model.state_dict().values())
        with Held([inputs, state, list(model.buffers())]) as held:
            outputs = nbytes(model(*inputs))
        return {"inputs": nbytes(inputs), "outputs": outputs, "state": nbytes(state), "between": max(held.most - outputs, 0)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    sizes = {}
    for level in (1, 2, 3):
        for path in sorted((arguments.checkout / "KernelBench" / f"level{level}").glob("*.py")):
            for device in ("meta", "cpu"):
                try:
                    sizes[f"level{level}/{path.name}"] = measure(path, device)
                    break
                except Exception as error:  # if a task reads values, the model is actually run
                    print(f"{path.name} on {device}: {type(error).__name__}: {error}", file=sys.stderr)
    arguments.out.write_text(json.dumps(sizes, indent=0) + "\n")
    print(f"{len(sizes)} tasks")
    return 0


if __name__ == "__main__":
    sys.exit(main())
