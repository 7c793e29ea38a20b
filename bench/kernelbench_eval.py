"""Runs programs through KernelBench's own, unmodified `eval_kernel_against_ref`, from a checkout.

    python bench/kernelbench_eval.py --kernelbench CHECKOUT --out RESULT.json TASK.py=PROGRAM.py [TASK.py=PROGRAM.py ...]

Needs a CUDA device. Importing `kernelbench` pulls in its LLM clients (`openai`, `litellm`, `dotenv`). The evaluation does not use them, so empty
modules replace them if they are not installed. The exit status is 0 only if every program compiled and was correct.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import types
from pathlib import Path
from typing import Any

UNUSED_CLIENTS = {"openai": ["OpenAI"], "litellm": ["completion"], "dotenv": ["load_dotenv"], "requests": [], "datasets": ["load_dataset"]}


def import_kernelbench(checkout: Path):
    """Imports the checkout's `kernelbench.eval` module."""
    for name, attributes in UNUSED_CLIENTS.items():
        if importlib.util.find_spec(name) is None:
            module = types.ModuleType(name)
            for attribute in attributes:
                setattr(module, attribute, lambda *args, **kwargs: None)
            sys.modules[name] = module
    sys.path.insert(0, str(checkout / "src"))
    from kernelbench import eval as kernelbench_eval

    return kernelbench_eval


def evaluated(kernelbench: Any, task: Path, program: Path, trials: int, perf_trials: int = 0) -> dict[str, Any]:
    """Evaluates one program on the first CUDA device, without times if `perf_trials` is 0."""
    import torch

    source = program.read_text()
    outcome = kernelbench.eval_kernel_against_ref(
        task.read_text(),
        source,
        num_correct_trials=trials,
        num_perf_trials=perf_trials,
        measure_performance=perf_trials > 0,
        device=torch.device("cuda:0"),
        backend="triton" if "@triton.jit" in source else "cuda",  # Triton reads the text of its kernels from a file
        precision=torch.float32,
    )
    return {
        "task": task.stem,
        "compiled": bool(outcome and outcome.compiled),
        "correct": bool(outcome and outcome.correctness),
        "runtime_ms": outcome.runtime if outcome else None,
        "reference_runtime_ms": getattr(outcome, "ref_runtime", None) if outcome else None,
        "metadata": {key: str(value)[:500] for key, value in (outcome.metadata if outcome else {}).items() if "traceback" not in key},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernelbench", type=Path, required=True, metavar="CHECKOUT")
    parser.add_argument("--out", type=Path, required=True, metavar="RESULT.json")
    parser.add_argument("--trials", type=int, default=5, help="correctness trials (KernelBench's scripts use 5)")
    parser.add_argument("--perf-trials", type=int, default=100, help="timed calls (default: 100; 0: no times)")
    parser.add_argument("pairs", nargs="+", metavar="TASK.py=PROGRAM.py")
    arguments = parser.parse_args()

    kernelbench = import_kernelbench(arguments.kernelbench)
    import torch

    results = []
    for pair in arguments.pairs:
        task, _, program = pair.partition("=")
        result = evaluated(kernelbench, Path(task), Path(program), arguments.trials, arguments.perf_trials)
        results.append(result)
        print(json.dumps(result), flush=True)
        arguments.out.write_text(json.dumps({"device": torch.cuda.get_device_name(0), "torch": torch.__version__, "results": results}, indent=1))
    return 0 if all(result["correct"] for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
