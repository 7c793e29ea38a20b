"""Selects a sweep's tasks by set name, and determines their order."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from verifier.judge.memory import large

ROOT = Path(__file__).resolve().parents[2]
TEN = (18, 22, 23, 24, 21, 19, 2, 39, 38, 32)  # level 3 tasks: StitchCUDA's (arXiv 2603.02637, table 1)
SETS = ("stitchcuda-ten", "level3", "level1", "level2", "level3-bf16", "everyday", "everyday-bf16", "examples")
ALIASES = {"ten": "stitchcuda-ten", "level3-ten": "stitchcuda-ten"}
USUAL = SETS[:5]
EVERYDAY = ROOT / "bench" / "everyday"
KINDS = {"everyday": ("serving", "domains", "loops", "library"), "everyday-bf16": ("serving",)}  # folders of the everyday suite
DRAWN, SEED = 20, 20  # number of further tasks for KernelBench's own evaluation: the first that passed in a shuffle with this seed


class NoSuchTasks(ValueError):
    """Raised if a set or a checkout does not exist. The message says which."""


@dataclass(frozen=True)
class Item:
    """A task under a precision policy: the subject of a run and of a row."""

    task: str  # "level3/18_SqueezeNet"
    precision: str
    path: Path

    @property
    def key(self) -> str:
        return f"{self.task} {self.precision}"


# Bytes of GPU memory that a run needs in the full tier for each byte of inputs, outputs and state, in addition to its contexts: three processes of
# the program and three of eager, compiled baselines, fp64 copies, the judge's own tensors. Processes with generated kernels do not have PyTorch's
# intermediate tensors. With inputs and outputs of 8 + 0, 4 + 4, 1 + 8 and 8 + 8 GiB, the peak use of an H200 was 55, 74, 109 and 126 GiB, and the use
# before the timed calls 45, 48, 69 and 81 GiB (bench/results/occupancy-h200.json, nvidia-smi every two seconds); 16 GiB of intermediates took 46 GiB.
# If memory is short, pairs of processes are measured one at a time.
PER_INPUT, PER_OUTPUT, PER_STATE, PER_BETWEEN, FIXED = 6.2, 10.0, 12.0, 4.0, 10 * 2**30
UNTIMED_INPUT, UNTIMED_OUTPUT = 4.5, 5.5


@cache
def sizes() -> dict[str, dict[str, int]]:
    return json.loads((ROOT / "bench" / "kernelbench-sizes.json").read_text())


def needs(item: Item) -> float:
    """Returns the bytes of device memory to reserve for a run of this task while others also use the device."""
    size = sizes().get(f"{item.task}.py")
    if size is None:
        return 3 * FIXED
    tensors = PER_INPUT * size["inputs"] + PER_OUTPUT * size["outputs"] + PER_STATE * size["state"] + PER_BETWEEN * size["between"]
    return FIXED + narrowed(item) * tensors


def untimed(item: Item) -> float:
    """Returns the bytes to reserve while the task's program is not being timed. Only one run whose calls take up gigabytes is timed at a time
    (`verifier.judge.gate.Gate.room`)."""
    size = sizes().get(f"{item.task}.py")
    if size is None or not large(int(narrowed(item) * (size["inputs"] + size["outputs"]))):
        return needs(item)
    tensors = UNTIMED_INPUT * size["inputs"] + UNTIMED_OUTPUT * size["outputs"] + PER_STATE * size["state"] + PER_BETWEEN * size["between"]
    return min(needs(item), FIXED + narrowed(item) * tensors)


def narrowed(item: Item) -> float:
    return 0.5 if item.precision in ("bf16", "fp16") else 1.0


def sets_of(given: str) -> list[str]:
    names = [ALIASES.get(name, name) for name in given.replace(",", " ").split()]
    for name in names:
        if name not in SETS:
            raise NoSuchTasks(f"there is no set {name!r}; there are {', '.join(SETS)}")
    return list(dict.fromkeys(names))


def in_set(name: str, key: str) -> bool:
    """Returns whether a row belongs to a set, judging by its key alone."""
    task, precision = key.rsplit(" ", 1)
    folder, _, stem = task.partition("/")
    if name == "stitchcuda-ten":
        return folder == "level3" and precision == "fp32-strict" and number(stem) in TEN
    wanted, bf16 = name.removesuffix("-bf16"), name.endswith("-bf16")
    return folder == wanted and precision == ("bf16" if bf16 else "fp32-strict")


def items(sets: Sequence[str], checkout: Path | None, only: Sequence[str] = ()) -> list[Item]:
    """Returns every task of the sets once, starting with the ten. If `only` is given, a task's name must contain one of its parts."""
    found: dict[str, Item] = {}
    ordered = sorted(sets, key=lambda name: name != "stitchcuda-ten")
    if "level3" in sets and "stitchcuda-ten" not in sets:
        ordered = ["stitchcuda-ten", *ordered]
    for name in ordered:
        folder = "level3" if name == "stitchcuda-ten" else name.removesuffix("-bf16")
        paths = suite(name) if name in KINDS else sources(folder, checkout)
        if name == "stitchcuda-ten":
            paths = sorted((p for p in paths if number(p.stem) in TEN), key=lambda p: TEN.index(number(p.stem)))
        for path in paths:
            task = path.relative_to(EVERYDAY).with_suffix("").as_posix() if name in KINDS else path.stem
            item = Item(f"{folder}/{task}", "bf16" if name.endswith("-bf16") else "fp32-strict", path)
            if not only or any(part in item.key for part in only):
                found.setdefault(item.key, item)
    return list(found.values())


def suite(name: str) -> list[Path]:
    """Returns the tasks of the everyday suite, kind by kind."""
    return [path for kind in KINDS[name] for path in sorted((EVERYDAY / kind).glob("*.py"))]


def sources(folder: str, checkout: Path | None) -> list[Path]:
    if folder == "examples":
        return sorted((ROOT / "examples").glob("*.py"))
    if checkout is None:
        raise NoSuchTasks(f"the set {folder} needs a KernelBench checkout (KERNELBENCH=path)")
    # A checkout has its tasks one folder down. That folder may also be given directly.
    places = [checkout / "KernelBench" / folder, checkout / folder]
    place = next((place for place in places if place.is_dir()), None)
    if place is None:
        raise NoSuchTasks(f"{checkout} is no KernelBench checkout: it has no {' and no '.join(str(p.relative_to(checkout)) for p in places)}")
    return sorted(place.glob("*.py"), key=lambda path: (number(path.stem), path.stem))


def number(stem: str) -> int:
    first = stem.split("_")[0]
    return int(first) if first.isdigit() else 10**6


def to_accept(solved: Sequence[str]) -> list[str]:
    """Returns the keys of the solved fp32 rows to be checked with KernelBench's own evaluation: the ten, then the random sample."""
    fp32 = [key for key in solved if key.endswith(" fp32-strict") and not key.startswith("examples/")]
    ten = [key for key in fp32 if in_set("stitchcuda-ten", key)]
    # Drawn by name alone, so that a task's position does not depend on which others have been solved.
    rest = sorted((key for key in fp32 if key not in ten), key=lambda key: random.Random(f"{SEED}/{key}").random())
    return ten + rest[:DRAWN]
