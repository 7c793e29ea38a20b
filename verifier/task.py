"""Contract 1: a task, in KernelBench's format, identified by the hash of its source."""

from __future__ import annotations

import ast
import os
import sys
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict

from verifier.source import Problem, SourceError, import_problems, parse, sha256, top_level

Precision = Literal["fp32-strict", "tf32", "bf16", "fp16"]
Mode = Literal["train", "eval"]
Flag = Literal["trivial", "stochastic", "narrow"]

LIBRARIES = "transformers,timm,torchvision"  # model libraries, where a verifier's host has them


def allowed_imports(named: str | None) -> frozenset[str]:
    """Returns the modules that a task may import: PyTorch's, the standard library, and those that the operator names, separated by commas (null: the
    usual model libraries)."""
    libraries = {name.strip() for name in (LIBRARIES if named is None else named).split(",")} - {""}
    return frozenset({"torch", "numpy", "einops", *libraries}) | frozenset(sys.stdlib_module_names)


ALLOWED_IMPORTS = allowed_imports(os.environ.get("STITCH_TASK_IMPORTS"))


@dataclass(frozen=True)
class Task:
    """A source that has been parsed (never run) and has the three names that a task must have."""

    source: str
    sha: str
    backward: bool

    @classmethod
    def read(cls, source: str, allowed_imports: frozenset[str] = ALLOWED_IMPORTS) -> Task:
        """Parses `source`. Raises `SourceError` listing everything that is wrong, with lines."""
        tree = parse(source)
        names = top_level(tree)
        problems = import_problems(tree, allowed_imports)
        model = names.get("Model")
        if not isinstance(model, ast.ClassDef):
            problems.append(
                Problem(
                    line=model.lineno if model else None,
                    message="there is no class `Model`",
                    hint="define `class Model(nn.Module)` with `__init__` and `forward`",
                )
            )
        elif not any(isinstance(item, ast.FunctionDef) and item.name == "forward" for item in model.body) and _plain_base(model):
            problems.append(Problem(line=model.lineno, message="`Model` has no method `forward`", hint="add `def forward(self, ...)`"))
        for function in ("get_inputs", "get_init_inputs"):
            if not isinstance(names.get(function), ast.FunctionDef):
                example = "[torch.rand(16, 1024)]" if function == "get_inputs" else "[]"
                problems.append(Problem(message=f"there is no function `{function}`", hint=f"define `def {function}(): return {example}`"))
        if problems:
            raise SourceError(sorted(problems, key=lambda p: p.line or 0))
        flag = names.get("backward")
        backward = isinstance(flag, ast.Assign) and isinstance(flag.value, ast.Constant) and flag.value.value is True
        return cls(source=source, sha=sha256(source), backward=backward)


def _plain_base(model: ast.ClassDef) -> bool:
    """Whether none of the base classes can have a forward."""
    return all(ast.unparse(base).split(".")[-1] in ("Module", "object", "ABC") for base in model.bases)


class TensorSpec(BaseModel):
    """A tensor as data. `shape` in elements, `dtype` as in `torch.float32` without the prefix."""

    model_config = ConfigDict(frozen=True)

    shape: tuple[int, ...]
    dtype: str
    stride: tuple[int, ...] | None = None  # null: contiguous


class Admission(BaseModel):
    """What the job `admit` found: whether the task is sound, and what it looks like."""

    task: str  # sha
    ok: bool
    problems: list[Problem] = []
    flags: list[Flag] = []
    inputs: list[TensorSpec | int | float | bool | str | None] = []  # non-tensor arguments by value
    outputs: list[TensorSpec] = []  # leaves, in order
    output_tree: str = ""  # e.g. "tensor", "(tensor, tensor)", "{'y': tensor}"
    parameters: int = 0  # number of floating elements in the state dict
    state_bytes: int = 0
    eager_ms: float | None = None  # median of a few calls; an estimate for display, never a result
    trivial_by: str = ""  # with the flag `trivial`: the guess that passes, e.g. "zeros"
    deterministic: bool | None = None  # whether the same call gives the same bits
    oracle: str = ""  # where fp64 was computed ("cuda:0", "cpu"), or why it was not
    memory_bytes: int | None = None  # approximate peak of device memory of a verification; measured, including the fp64 run
    mutates: list[str] = []  # state-dict names that forward changes (running statistics)
    protection: list[str] = []  # what confined the run

    @property
    def shapes(self) -> list[str]:
        """Describes each tensor among the task's own inputs: "float32[4, 8]"."""
        return [f"{given.dtype}[{', '.join(map(str, given.shape))}]" for given in self.inputs if isinstance(given, TensorSpec)]
