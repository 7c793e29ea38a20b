"""KernelBench's tasks, made small, through the compiler and the emulator of `tests/emulator.py`: are the CUDA programs right, without a GPU?

    python bench/emulated.py CHECKOUT [--level 2] [--only NAME] [--precision bf16] [--jobs 2] [--seconds 100]

Sizes are the constants that a task states, each made small by its name (`batch_size`, `height`, `in_channels`, ...), where the model still runs then.
Products and convolutions are planned as if they were large. Prints a line a task: `ok`, `WRONG` with the distance from PyTorch's result, `ERROR`,
`small` where nothing is left to a kernel of the compiler, and `-` with the reason where a task cannot be made small this way; exit status 1 where a
program is wrong or does not run. Tasks that draw random numbers in forward (dropout) are `WRONG` by nature.
"""

# sandboxed: imports tasks; run it where KernelBench itself may run

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

MOST_ELEMENTS = 6e6  # of a task's inputs
MOST_SIDE, MOST_FEATURES, MOST_OTHER, MOST_OF_SHAPES = 20, 64, 96, 70
SIDES = re.compile(r"height|width|depth|length|seq|^[hwdl]$|size|dim[123]?$")
FEATURES = re.compile(r"chan|feat|hidden|embed|model|input_size|output_size|dim|in_|out_")
NO_SIDE = re.compile(r"hidden|feature|channel|embed|kernel|input_size|output_size|model|head")
ASSIGNED = re.compile(r"^(\s*[A-Za-z_][\w ,=]*?)=\s*(\d[\d, ]*)(\s*#.*|\s*)$")


def smaller(name: str, value: int) -> int:
    name = name.lower()
    if value <= 16:
        return value
    if re.search(r"batch|^[nb]$", name):
        return 3
    if SIDES.search(name) and not NO_SIDE.search(name):
        return min(value, MOST_SIDE)
    return min(value, MOST_FEATURES if FEATURES.search(name) else MOST_OTHER)


def made_small(source: str) -> str:
    """The task with the constants behind its last class made small."""
    cut, end = source.rfind("\nclass "), source.index("def get_inputs")
    lines = []
    for line in source[cut:end].split("\n"):
        plain = not line.startswith((" ", "def", "class", "@"))
        lines.append(";".join(ASSIGNED.sub(_assignment, piece) for piece in line.split(";")) if plain else line)
    constants = re.sub(r"(?m)^(\w*shape\w*) *= *\(([^()]*)\)", _shape, "\n".join(lines))
    return source[:cut] + constants + source[end:]


def _assignment(match: re.Match[str]) -> str:
    names, values = re.findall(r"[A-Za-z_]\w*", match[1]), [int(value) for value in match[2].split(",") if value.strip()]
    side = any(re.search("height|width|depth", name.lower()) for name in names)  # all that are assigned together
    named = names if len(names) == len(values) else [names[0]] * len(values)
    small = [min(smaller(name, value), MOST_SIDE if side else value) for name, value in zip(named, values, strict=True)]
    return f"{match[1]}= {', '.join(map(str, small))}{match[3]}"


def _shape(match: re.Match[str]) -> str:
    return f"{match[1]} = ({re.sub(r'[0-9]+', lambda size: str(min(int(size[0]), MOST_OF_SHAPES)), match[2])})"


def one(path: Path, precision: str) -> str:
    import torch

    from agents.compiler import DeviceFigures
    from agents.compiler.families import conv, matmul
    from tests.emulator import as_cpp
    from tests.unit.compiler.conftest import Compiled

    conv.LEAST_FLOPS = conv.THIN_FLOPS = matmul.LEAST_FLOPS = 1
    source = made_small(path.read_text())
    try:
        names: dict = {}
        exec(compile(source, str(path), "exec"), names)
        with torch.no_grad():
            inputs = names["get_inputs"]()
            elements = sum(value.numel() for value in inputs if isinstance(value, torch.Tensor))
            if elements > MOST_ELEMENTS:
                return f"- its inputs still have {elements / 1e6:.0f} million elements"
            names["Model"](*names["get_init_inputs"]())(*inputs)
    except Exception as error:
        return f"- {type(error).__name__}: {str(error)[:120]}"
    found = Compiled(source, figures=DeviceFigures.h200().model_copy(update={"units": 4}), precision=precision)
    kinds = ", ".join(dict.fromkeys(group.family or group.space for group in found.plan.groups))
    if "SOURCE = r" not in found.text:
        return f"small ({kinds})"
    found.text = as_cpp(found.text)
    try:
        found.check()
    except AssertionError as error:
        return f"WRONG ({kinds}) {str(error)[:120]}"
    return f"ok ({kinds})"


def child(path: Path, precision: str, seconds: float) -> str:
    command = [sys.executable, __file__, str(path), "--one", "--precision", precision]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return f"- not done within {seconds:.0f} s"
    said = [line for line in done.stdout.splitlines() if line.startswith("said: ")]
    return said[-1].removeprefix("said: ") if said else f"ERROR {(done.stderr.strip().splitlines() or ['no word'])[-1][:200]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--level", type=int, action="append", choices=(1, 2, 3))
    parser.add_argument("--only", action="append", default=[], help="part of a task's file name")
    parser.add_argument("--precision", default="fp32-strict", choices=("fp32-strict", "bf16", "fp16"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=100, help="a task")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        warnings.simplefilter("ignore")
        print(f"said: {one(arguments.checkout, arguments.precision)}")
        return 0
    paths = [path for level in arguments.level or (1, 2, 3) for path in (arguments.checkout / "KernelBench" / f"level{level}").glob("*.py")]
    paths = sorted((p for p in paths if not arguments.only or any(part in p.stem for part in arguments.only)), key=lambda p: (p.parent.name, p.stem))
    bad = 0
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for path, said in zip(paths, pool.map(lambda path: child(path, arguments.precision, arguments.seconds), paths), strict=True):
            print(f"{path.parent.name}/{path.stem}: {said}", flush=True)
            bad += said.startswith(("WRONG", "ERROR"))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
