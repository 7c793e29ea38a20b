"""Bytes of inputs, outputs and state of KernelBench's models, from tensors without data; `kernelbench_self.py` plans its memory by them.

python bench/kernelbench_sizes.py CHECKOUT --out bench/kernelbench-sizes.json
"""

# sandboxed: imports tasks; run it where KernelBench itself may run

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import torch


def nbytes(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    return sum(map(nbytes, value)) if isinstance(value, (list, tuple)) else 0


def measure(path: Path) -> dict[str, int]:
    """Raises whatever the task raises: a few read values of tensors that have none here."""
    spec = importlib.util.spec_from_file_location("task", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with torch.device("meta"), torch.no_grad():
        spec.loader.exec_module(module)
        inputs = module.get_inputs()
        model = module.Model(*module.get_init_inputs())
        return {"inputs": nbytes(inputs), "outputs": nbytes(model(*inputs)), "state": nbytes(list(model.state_dict().values()))}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    sizes = {}
    for level in (1, 2, 3):
        for path in sorted((arguments.checkout / "KernelBench" / f"level{level}").glob("*.py")):
            try:
                sizes[f"level{level}/{path.name}"] = measure(path)
            except Exception as error:  # its size is not known, so it is taken for small
                print(f"{path.name}: {type(error).__name__}: {error}", file=sys.stderr)
    arguments.out.write_text(json.dumps(sizes, indent=0) + "\n")
    print(f"{len(sizes)} tasks")
    return 0


if __name__ == "__main__":
    sys.exit(main())
