"""Runs scaled-down KernelBench tasks through the compiler and the emulator of `tests/emulator`, to check the CUDA programs without a GPU.

    python bench/emulated.py CHECKOUT [--level 2] [--only NAME] [--first NAME] [--precision bf16] [--jobs 2] [--seconds 300] [--out RESULT.json]

Sizes are the constants that a task defines. Each is reduced according to its name (`batch_size`, `height`, `in_channels`, ...), provided that the
model still runs; those of level 3 are listed individually (`LISTED`). Products, convolutions and lone operators are planned as if they were large.
Prints one line per task: `ok` (with the error, if it exceeds the tolerance of the compiler's unit tests but is within the verifier's bound), `WRONG`
with the distances from fp64, `ERROR`, `small` if no group is left to a compiler kernel, or `-` with the reason if a task cannot be scaled down this
way. The exit status is 1 if a program is wrong or does not run. Tasks that draw random numbers in forward (dropout) are inherently `WRONG`.
"""

# sandboxed: imports tasks; run it where KernelBench itself may run

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from math import prod
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

MOST_ELEMENTS = 1e7  # maximum per task, over all inputs
MOST_SIDE, MOST_FEATURES, MOST_OTHER, MOST_OF_SHAPES = 20, 64, 96, 70
SIDES = re.compile(r"height|width|depth|^[hwdl]$|size|dim[123]?$")
FEATURES = re.compile(r"chan|feat|hidden|embed|model|input_size|output_size|dim|in_|out_")
NO_SIDE = re.compile(r"hidden|feature|channel|embed|kernel|input_size|output_size|model|head")
ASSIGNED = re.compile(r"^(\s*[A-Za-z_][\w ,=]*?)=\s*(\d[\d, *]*)(\s*#.*|\s*)$")


# Sizes (features, side) by level and number, for tasks in which the usual sizes do not work: those with layer norms over a width that must equal a
# channel count, those with many dimensions, and 3D convolutions that took the emulator more than 520 s.
SIZES = {
    "level2/3": (40, 20),
    "level2/34": (40, 20),
    **dict.fromkeys(("level1/68", "level2/26", "level2/61", "level2/77", "level2/78", "level2/100"), (16, 8)),
    **dict.fromkeys(("level1/58", "level1/77", "level2/20", "level2/47", "level2/49"), (32, 8)),
}

# Level 3 defines few of its sizes as constants. For each task, this lists its small constants, the image sides in its inputs, and words from its
# classes.
IMAGE = re.compile(r"\b(224|240|512)\b")
BRIEF = {"batch_size": 2}
RECURRENT = {"batch_size": 3, "sequence_length": 6, "seq_len": 6, "input_size": 32, "hidden_size": 32, "num_layers": 2, "output_size": 10}
TEXT = {"batch_size": 2, "max_seqlen": 32, "seq_len": 24, "n_embd": 96}
SWIN = {"img_size=224": "img_size=56", "embed_dim=96": "embed_dim=48", "[2, 2, 6, 2]": "[2, 2]", "[3, 6, 12, 24]": "[3, 6]"}
VGG = {"512 * 7 * 7": "512", "4096": "64"}
LEVEL3: dict[int, tuple[dict[str, object], int, dict[str, str]]] = {
    1: ({"batch_size": 5, "input_size": 72, "layer_sizes": [96, 64], "output_size": 40}, 0, {}),
    2: ({"batch_size": 5, "input_size": 72, "hidden_layer_sizes": [96, 64], "output_size": 40}, 0, {}),
    3: ({"batch_size": 5, "input_size": 72, "hidden_layer_sizes": [32] * 16, "output_size": 40}, 0, {}),
    4: ({"batch_size": 3}, 0, {}),
    5: (BRIEF, 64, {"256 * 6 * 6": "256", "4096": "64"}),
    6: (
        BRIEF
        | {"in_channels": 48, "out_1x1": 24, "reduce_3x3": 16, "out_3x3": 32, "reduce_5x5": 8, "out_5x5": 16, "pool_proj": 16}
        | {"height": 24, "width": 24},
        0,
        {},
    ),
    7: (BRIEF | {"height": 64, "width": 64}, 0, {}),
    8: (BRIEF, 24, {}),
    9: (BRIEF | {"input_shape": (2, 3, 64, 64)}, 0, {}),
    10: (BRIEF | {"height": 64, "width": 64, "layers": [1, 1, 2, 1]}, 0, {}),
    11: (BRIEF, 32, VGG),
    12: (BRIEF, 32, VGG),
    13: ({"batch_size": 3, "height, width": (16, 16)}, 0, {}),
    14: (BRIEF | {"height, width": (12, 12)}, 0, {}),
    15: (BRIEF | {"height, width": (64, 64)}, 0, {"[6, 12, 24, 16]": "[2, 3, 2, 2]"}),
    16: (BRIEF | {"height, width": (64, 64)}, 0, {"[6, 12, 48, 32]": "[2, 3, 2, 2]"}),
    17: (BRIEF | {"height, width": (16, 16)}, 0, {}),
    18: (BRIEF | {"height": 64, "width": 64}, 0, {}),
    19: (BRIEF | {"height": 64, "width": 64}, 0, {"AvgPool2d(7)": "AvgPool2d(2)"}),
    20: (BRIEF, 64, {}),
    21: (BRIEF | {"in_channels": 24, "out_channels": 32}, 24, {}),
    22: (BRIEF, 64, {}),
    23: (BRIEF | {"input_shape": (3, 64, 64)}, 0, {}),
    24: (BRIEF, 64, {}),
    25: (BRIEF | {"input_channels": 24, "out_channels": 48, "height": 16, "width": 16}, 0, {}),
    26: (BRIEF | {"height": 64, "width": 64}, 0, {}),
    27: (BRIEF | {"image_height, image_width": (32, 32)}, 0, {}),
    28: ({"image_size": 32, "patch_size": 8, "dim": 64, "depth": 2, "heads": 4, "mlp_dim": 96}, 0, {}),
    29: (BRIEF | {"image_size": 56}, 0, SWIN),
    30: (BRIEF | {"image_size": 56}, 0, SWIN),
    31: ({"embed_dim": 64, "image_height": 12, "image_width": 12}, 0, {}),
    32: ({"batch_size": 3}, 0, {}),
    33: ({"batch_size": 8, "input_size": 64, "hidden_size": 64, "output_size": 32}, 0, {}),
    34: (RECURRENT | {"batch_size": 8, "sequence_length": 40}, 0, {}),
    **dict.fromkeys(range(35, 43), (RECURRENT, 0, {})),
    43: (TEXT | {"n_head": 4}, 0, {}),
    44: (TEXT | {"n_head": 4}, 0, {}),
    45: (BRIEF | {"height": 16, "width": 32, "features": 8}, 0, {}),
    46: ({"batch_size": 3, "num_features": 20, "feature_size": 64}, 0, {}),
    47: ({"batch_size": 3, "num_features": 20, "feature_size": 64}, 0, {}),
    48: (BRIEF | {"seq_length": 16, "block_len": 8, "n_heads": 2, "d_head": 16}, 0, {}),
    49: (BRIEF | {"seq_length": 16, "block_len": 8, "n_heads": 2, "d_head": 16}, 0, {}),
    50: (TEXT | {"max_seqlen": 24}, 0, {}),
}


LISTED = {f"level3/{number}": sizes for number, sizes in LEVEL3.items()} | {"level1/100": ({"batch_size": 70, "input_shape": (70,)}, 0, {})}


def as_listed(source: str, constants: dict[str, object], side: int, words: dict[str, str]) -> str:
    cut = source.rfind("\nclass ")
    classes, rest = source[:cut], source[cut:]
    for name, value in constants.items():
        rest = re.sub(rf"(?m)^{re.escape(name)} *=.*$", f"{name} = {value!r}", rest)
    if side:
        begin = rest.index("def get_inputs")
        rest = rest[:begin] + IMAGE.sub(str(side), rest[begin:])
    source = classes + rest
    for old, new in words.items():
        source = source.replace(old, new)
    return source


def smaller(name: str, value: int, features: int, side: int) -> int:
    name = name.lower()
    if value <= 16:
        return value
    if re.search(r"batch|^b$", name):
        return 3
    if "groups" in name:
        return 8
    if SIDES.search(name) and not NO_SIDE.search(name):
        return min(value, side)
    return min(value, features if FEATURES.search(name) else MOST_OTHER)


def made_small(source: str, features: int, side: int) -> str:
    """Returns the task with reduced constants after its last class: channels and similar sizes become `features`, image sides `side`."""
    assigned = partial(_assignment, features=features, side=side)
    cut, end = source.rfind("\nclass "), source.index("def get_inputs")
    lines = []
    for line in source[cut:end].split("\n"):
        plain = not line.startswith((" ", "def", "class", "@"))
        lines.append(";".join(ASSIGNED.sub(assigned, piece) for piece in line.split(";")) if plain else line)
    constants = re.sub(r"(?m)^(\w*shape\w*) *= *\(([^()]*)\)", _shape, "\n".join(lines))
    return source[:cut] + constants + source[end:]


def _assignment(match: re.Match[str], features: int, side: int) -> str:
    names, values = re.findall(r"[A-Za-z_]\w*", match[1]), [_product(value) for value in match[2].split(",") if value.strip()]
    least = side if any(re.search("height|width|depth", name.lower()) for name in names) else None  # of all names that are assigned in one statement
    named = names if len(names) == len(values) else [names[0]] * len(values)
    small = [min(smaller(name, value, features, side), least or value) for name, value in zip(named, values, strict=True)]
    return f"{match[1]}= {', '.join(map(str, small))}{match[3]}"


def _product(value: str) -> int:
    return prod(int(factor) for factor in value.split("*"))


def _shape(match: re.Match[str]) -> str:
    return f"{match[1]} = ({re.sub(r'[0-9]+', lambda size: str(min(int(size[0]), MOST_OF_SHAPES)), match[2])})"


def one(path: Path, precision: str, target: str) -> str:
    import torch

    from compiler import DeviceFigures, Options, make_plan, print_program
    from compiler.families.attention import attention
    from compiler.families.conv import conv
    from compiler.families.product import matmul, matvec
    from compiler.planning import partition
    from tests import kept
    from tests.emulator import as_cpp
    from tests.unit.compiler.conftest import Compiled
    from tests.unit.compiler.triton_on_cpu import interpreted
    from verifier.correctness.bounds import bound

    os.environ.setdefault("STITCH_BUILD_DIR", str(kept.folder("libraries-" + kept.compiler())))
    partition.TINY = 32
    conv.LEAST_FLOPS = conv.THIN_FLOPS = matmul.LEAST_FLOPS = attention.LEAST_FLOPS = attention.LEAST_KEYS = matvec.LEAST = matvec.LEAST_DEPTH = 1
    text, place = path.read_text(), f"{path.parent.name}/{path.stem.partition('_')[0]}"
    source = as_listed(text, *LISTED[place]) if place in LISTED else made_small(text, *SIZES.get(place, (MOST_FEATURES, MOST_SIDE)))
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
    figures = DeviceFigures.h200().model_copy(update={"units": 4})
    found = Compiled(source, figures=figures, precision=precision)
    if target == "triton":
        found.plan = make_plan(found.capture, found.source, figures, precision, language="triton")
        found.text = print_program(found.plan, found.source, Options())
    kinds = ", ".join(dict.fromkeys(group.family or group.space for group in found.plan.groups))
    if not any(mark in found.text for mark in ("SOURCE = r", "@triton.jit")):
        return f"small ({kinds})"
    try:
        if target == "triton":
            with interpreted():
                found.check()
        else:
            found.text = as_cpp(found.text)
            found.check()
    except AssertionError as error:
        off = error.args[0] if error.args else None
        if isinstance(off, tuple) and off[0] <= bound(off[1], [], found.dtype, precision):
            return f"ok ({kinds}), {off[0] / off[1]:.1f} times as far from fp64 as PyTorch"
        return f"WRONG ({kinds}) {str(error)[:120]}"
    return f"ok ({kinds})"


def child(path: Path, precision: str, target: str, seconds: float) -> str:
    command = [sys.executable, __file__, str(path), "--one", "--precision", precision, "--target", target]
    # The emulator uses one thread; PyTorch's own threads in each of many tasks would only displace it.
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds, env=environment)
    except subprocess.TimeoutExpired:
        return f"- not done within {seconds:.0f} s"
    said = [line for line in done.stdout.splitlines() if line.startswith("said: ")]
    return said[-1].removeprefix("said: ") if said else f"ERROR {(done.stderr.strip().splitlines() or ['no word'])[-1][:200]}"


def keep(out: Path, kind: str, task: str, said: str) -> None:
    content = json.loads(out.read_text()) if out.exists() else {}
    content.setdefault(kind, {})[task] = said
    out.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--level", type=int, action="append", choices=(1, 2, 3))
    parser.add_argument("--only", action="append", default=[], help="part of a task's file name")
    parser.add_argument("--first", action="append", default=[], help="part of a task's file name: begin with it, since it takes long")
    parser.add_argument("--precision", default="fp32-strict", choices=("fp32-strict", "bf16", "fp16"))
    parser.add_argument("--target", default="cuda", choices=("cuda", "triton"), help="triton: by Triton's interpreter, which scripts/triton installs")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=300, help="a task")
    parser.add_argument(
        "--out", type=Path, metavar="RESULT.json", help="what was said of each task, by precision and target; other results in it stay"
    )
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        warnings.simplefilter("ignore")
        print(f"said: {one(arguments.checkout, arguments.precision, arguments.target)}")
        return 0
    paths = [path for level in arguments.level or (1, 2, 3) for path in (arguments.checkout / "KernelBench" / f"level{level}").glob("*.py")]
    paths = sorted((p for p in paths if not arguments.only or any(part in p.stem for part in arguments.only)), key=lambda p: (p.parent.name, p.stem))
    first = {part: place for place, part in enumerate(arguments.first)}
    paths.sort(key=lambda path: min((place for part, place in first.items() if part in path.stem), default=len(first)))
    bad = 0
    with ThreadPoolExecutor(arguments.jobs) as pool:
        waiting = {pool.submit(child, path, arguments.precision, arguments.target, arguments.seconds): path for path in paths}
        # Each result is kept when its task ends, so an interrupted run loses only the tasks in progress.
        for done in as_completed(waiting):
            path, said = waiting[done], done.result()
            print(f"{path.parent.name}/{path.stem}: {said}", flush=True)
            bad += said.startswith(("WRONG", "ERROR"))
            if arguments.out is not None:
                keep(arguments.out, f"{arguments.target} {arguments.precision}", f"{path.parent.name}/{path.stem}", said)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
