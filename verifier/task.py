"""Contract 1: a task is a source in KernelBench's format, identified by its hash."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict

from verifier.source import Problem, SourceError, import_problems, parse, sha256, top_level

Precision = Literal["fp32-strict", "tf32", "bf16", "fp16"]
Mode = Literal["train", "eval"]
Flag = Literal["trivial", "stochastic", "narrow"]

LIBRARIES = "transformers,timm,torchvision"  # model libraries, if the verifier's host has them


def allowed_imports(named: str | None) -> frozenset[str]:
    """Returns the modules that a task may import: PyTorch's, the standard library's, and those that the operator names, separated by commas (null:
    the usual model libraries)."""
    libraries = {name.strip() for name in (LIBRARIES if named is None else named).split(",")} - {""}
    return frozenset({"torch", "numpy", "einops", *libraries}) | frozenset(sys.stdlib_module_names)


ALLOWED_IMPORTS = allowed_imports(os.environ.get("STITCH_TASK_IMPORTS"))


@dataclass(frozen=True)
class Task:
    """A source that has been parsed (but never run) and has the three required names."""

    source: str
    sha: str
    backward: bool

    @classmethod
    def read(cls, source: str, allowed_imports: frozenset[str] = ALLOWED_IMPORTS) -> Task:
        """Parses `source`. Raises `SourceError` listing all problems with their lines."""
        tree = parse(source)
        names = top_level(tree)
        problems = import_problems(tree, allowed_imports)
        problems += _model_problems(tree, names.get("Model"))
        problems += [problem for function in ("get_inputs", "get_init_inputs") if (problem := _function_problem(tree, names.get(function), function))]
        if problems:
            raise SourceError(sorted(problems, key=lambda p: p.line or 0))
        flag = names.get("backward")
        backward = isinstance(flag, ast.Assign) and isinstance(flag.value, ast.Constant) and flag.value.value is True
        return cls(source=source, sha=sha256(source), backward=backward)


def _model_problems(tree: ast.Module, model: ast.stmt | None) -> Iterator[Problem]:
    """Yields the problems that prevent the model from being read: it must be defined by a class statement at module level, with forward as a
    method."""
    if not isinstance(model, ast.ClassDef):
        hint = "define `class Model(nn.Module)` with `__init__` and `forward`"
        if model is not None and not isinstance(model, (ast.FunctionDef, ast.AsyncFunctionDef)):
            message = "`Model` is only a name for a class that is defined elsewhere"
            yield Problem(line=model.lineno, message=message, hint=f"{hint}, or derive it: `class Model(Other): pass`")
        elif (inner := _within(tree, "Model", ast.ClassDef)) is not None:
            message = "`class Model` is defined within another statement"
            yield Problem(line=inner.lineno, message=message, hint=f"{hint} at the top level of the module")
        else:
            yield Problem(line=model.lineno if model else None, message="there is no class `Model`", hint=hint)
        return
    method = any(isinstance(item, ast.FunctionDef) and item.name == "forward" for item in model.body)
    hint = "define it with `def forward(self, ...)` directly in the class; call the other function there"
    if method or not _plain_base(model):
        return
    if (line := _assigned_forward(tree, model)) is not None:
        yield Problem(line=line, message="`forward` of `Model` is assigned, so the class does not show what it computes", hint=hint)
    elif (line := next((item.lineno for item in model.body if isinstance(item, ast.AsyncFunctionDef) and item.name == "forward"), None)) is not None:
        yield Problem(line=line, message="`forward` of `Model` is a coroutine (`async def`)", hint="write `def forward(self, ...)`")
    elif (inner := _within(model, "forward", ast.FunctionDef)) is not None:
        yield Problem(line=inner.lineno, message="`forward` of `Model` is defined within another statement", hint=hint)
    else:
        yield Problem(line=model.lineno, message="`Model` has no method `forward`", hint="add `def forward(self, ...)`")


def _assigned_forward(tree: ast.Module, model: ast.ClassDef) -> int | None:
    """Returns the line at which the class or its instance is given another `forward`, or null."""
    owners = {"Model"}
    for item in model.body:
        if isinstance(item, ast.FunctionDef) and item.args.args:
            owners.add(item.args.args[0].arg)
        if isinstance(item, ast.Assign) and any(isinstance(target, ast.Name) and target.id == "forward" for target in item.targets):
            return item.lineno
    outside = [item for item in tree.body if not isinstance(item, ast.ClassDef)]
    for place in (*outside, model):
        for node in ast.walk(place):
            targets = node.targets if isinstance(node, ast.Assign) else ()
            named = owners if place is model else {"Model"}
            for target in targets:
                if isinstance(target, ast.Attribute) and target.attr == "forward" and isinstance(target.value, ast.Name) and target.value.id in named:
                    return node.lineno  # type: ignore[attr-defined, no-any-return]  # an assignment has a line
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setattr" and len(node.args) == 3:
                owner, key = node.args[:2]
                if isinstance(owner, ast.Name) and owner.id in named and isinstance(key, ast.Constant) and key.value == "forward":
                    return node.lineno
    return None


def _function_problem(tree: ast.Module, found: ast.stmt | None, name: str) -> Problem | None:
    """Returns the problem with a function of the task. A name for a function that is created elsewhere is accepted."""
    named = isinstance(found, (ast.Assign, ast.AnnAssign)) and isinstance(found.value, (ast.Lambda, ast.Name, ast.Call))
    if isinstance(found, ast.FunctionDef) or named:
        return None
    example = "[torch.rand(16, 1024)]" if name == "get_inputs" else "[]"
    hint = f"define `def {name}(): return {example}`"
    if found is not None:
        return Problem(line=found.lineno, message=f"`{name}` is not a function that the task defines", hint=hint)
    if (inner := _within(tree, name, ast.FunctionDef)) is not None:
        return Problem(line=inner.lineno, message=f"`{name}` is defined within another statement", hint=f"{hint} at the top level of the module")
    return Problem(message=f"there is no function `{name}`", hint=hint)


def _within(tree: ast.AST, name: str, kind: type[ast.ClassDef] | type[ast.FunctionDef]) -> ast.ClassDef | ast.FunctionDef | None:
    return next((node for node in ast.walk(tree) if isinstance(node, kind) and node.name == name), None)


def _plain_base(model: ast.ClassDef) -> bool:
    """Returns whether no base class can define a forward."""
    return all(ast.unparse(base).split(".")[-1] in ("Module", "object", "ABC") for base in model.bases)


class TensorSpec(BaseModel):
    """A tensor as data. `shape` is in elements; `dtype` is as in `torch.float32`, without the prefix."""

    model_config = ConfigDict(frozen=True)

    shape: tuple[int, ...]
    dtype: str
    stride: tuple[int, ...] | None = None  # null: contiguous


class Admission(BaseModel):
    """The result of the `admit` job: whether the task is usable, and its properties."""

    task: str  # sha
    ok: bool
    problems: list[Problem] = []
    flags: list[Flag] = []
    inputs: list[TensorSpec | int | float | bool | str | None] = []  # non-tensor arguments by value
    outputs: list[TensorSpec] = []  # leaves, in order
    output_tree: str = ""  # e.g. "tensor", "(tensor, tensor)", "{'y': tensor}"
    parameters: int = 0  # number of floating-point elements in the state dict
    state_bytes: int = 0
    eager_ms: float | None = None  # median of a few calls; a display estimate, never a result
    eager_error: float | None = None  # largest error of eager against fp64 over the outputs, with the task's inputs; null without fp64
    error_bound: float | None = None  # the bound for that output; plain arithmetic's error may widen it
    decided: float | None = None  # largest share of an output's elements that eager decides differently from fp64
    trivial_by: str = ""  # if the `trivial` flag is set: the guess that passed, e.g. "zeros"
    deterministic: bool | None = None  # whether repeating a call gives the same bits
    oracle: str = ""  # where fp64 was computed ("cuda:0", "cpu"), or why it was not available
    memory_bytes: int | None = None  # approximate peak device memory of a verification; measured, including the fp64 run
    mutates: list[str] = []  # state-dict names that forward changes (running statistics)
    protection: list[str] = []  # layers that confined the run

    @property
    def shapes(self) -> list[str]:
        """Describes each tensor among the task's own inputs: "float32[4, 8]"."""
        return [f"{given.dtype}[{', '.join(map(str, given.shape))}]" for given in self.inputs if isinstance(given, TensorSpec)]
