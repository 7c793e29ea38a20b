"""Reads the examples that ship with Stitchwork as text, to serve as starting points for newcomers."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from django.conf import settings

SKELETON = '''import torch
import torch.nn as nn


class Model(nn.Module):
    """What the model computes, in one line."""

    def __init__(self):
        super().__init__()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x)


def get_inputs():
    # Drawn anew for each check; the shapes are those that the program is made for.
    return [torch.rand(1024, 4096)]


def get_init_inputs():
    return []
'''

PROGRAM_SKELETON = '''import torch
import torch.nn as nn


class ModelNew(nn.Module):
    """The same constructor and forward as the task's Model."""

    def __init__(self):
        super().__init__()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x)
'''

FIRST = "masked_pool"  # opened by default: on a CPU, 1.4x over torch.compile and 5.7x over eager in a minute (bench/results/solve-cpu.md)


@dataclass(frozen=True)
class Example:
    slug: str  # file name without .py
    title: str  # first line of the docstring of the module or the model
    source: str


def examples() -> list[Example]:
    folder = Path(settings.EXAMPLES_DIR)
    stamps = tuple((path.name, path.stat().st_mtime_ns) for path in sorted(folder.glob("*.py")) if not path.name.startswith("_"))
    return _read(folder, stamps)


def example(slug: str) -> Example | None:
    return next((found for found in examples() if found.slug == slug), None)


def first_source() -> str:
    """Return the submit page's initial source: an example that can gain on any device or, if there is none, a task skeleton."""
    found = example(FIRST)
    return found.source if found else SKELETON


@lru_cache(maxsize=2)
def _read(folder: Path, stamps: tuple[tuple[str, int], ...]) -> list[Example]:
    found = []
    for name, _ in stamps:
        source = (folder / name).read_text()
        found.append(Example(slug=name.removesuffix(".py"), title=described(source), source=source))
    return found


def described(source: str) -> str:
    """Return the first line of the module's docstring or, failing that, of `Model`'s, or "" if neither has one. The source is parsed but never
    run."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    models: list[ast.Module | ast.ClassDef] = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name in ("Model", "ModelNew")]
    for node in (tree, *models):
        text = ast.get_docstring(node)
        if text:
            return text.strip().splitlines()[0].rstrip(".")
    return ""
