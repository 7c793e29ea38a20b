"""Measures how much the judge's kernels for large tensors (`verifier/passes`) save.

They are compared with PyTorch's operators, which are used if the kernels are not available:

    python bench/passes.py --out bench/results/passes-h200.json [--gib 6] [--repeats 7]

The measured operations, on fp32 tensors of the given size, are the distance between outputs, the check that inputs are unchanged, and fingerprints.
Times are in milliseconds per repeat, and both sides are measured alternately.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from verifier.correctness.bounds import distance, same_values  # noqa: E402
from verifier.correctness.fingerprint import fingerprint  # noqa: E402
from verifier.devices.cuda import find_nvcc  # noqa: E402
from verifier.passes import native  # noqa: E402


def milliseconds(function: Callable[[], object]) -> float:
    torch.cuda.synchronize()
    begin = time.perf_counter()
    function()
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--gib", type=float, default=6.0)
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    major, minor = torch.cuda.get_device_capability()
    with tempfile.TemporaryDirectory() as folder:
        library = native.build(Path(folder), find_nvcc(), f"sm_{major}{minor}")
        if library is None:
            parser.error("the kernels do not compile: is nvcc there?")
        kernels = native.Passes(library)
    value = torch.randn(int(arguments.gib * 2**28), device="cuda")
    close, same = value * 1.000001, value.clone()
    asked = {"distance": lambda: distance(value, close), "same values": lambda: same_values(value, same), "fingerprint": lambda: fingerprint(value)}
    samples: dict[str, dict[str, list[float]]] = {name: {"operators": [], "kernels": []} for name in asked}
    for repeat in range(arguments.repeats + 1):
        for name, function in asked.items():
            for way, passes in (("operators", None), ("kernels", kernels)):
                native.use(passes)
                taken = milliseconds(function)
                if repeat:  # the first repeat loads kernels and maps memory
                    samples[name][way].append(round(taken, 3))
    found = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "gib": arguments.gib, "ms": samples}
    arguments.out.write_text(json.dumps(found) + "\n")
    for name, ways in samples.items():
        print(f"{name}: {statistics.median(ways['operators']):.1f} ms by operators, {statistics.median(ways['kernels']):.1f} by kernels")


if __name__ == "__main__":
    main()
