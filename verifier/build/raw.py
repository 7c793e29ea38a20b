"""Finds the raw kernels in a program's source, which lets them compile while torch is still being imported. Nothing is executed here."""

from __future__ import annotations

import ast
import hashlib
from dataclasses import dataclass

MAX_REQUESTS = 16
# Must match `inline_helper.py`, which programs contain verbatim, because a library is named by the hash of its inputs.
CUDA_FLAGS = ("-O3", "-std=c++17", "-shared", "-Xcompiler=-fPIC")
CPP_FLAGS = ("-O3", "-march=native", "-std=c++17", "-fopenmp", "-fPIC", "-shared", "-fno-math-errno", "-fno-trapping-math")


@dataclass(frozen=True)
class RawRequest:
    """One call of `stitch_build`."""

    language: str
    source: str
    flags: tuple[str, ...] = ()

    def options(self, arch: str) -> list[str]:
        """Returns the compiler's options. `arch` has the format of `STITCH_CUDA_ARCH`."""
        base = [*CUDA_FLAGS, "-arch=" + arch] if self.language == "cuda" else [*CPP_FLAGS]
        return [*base, *self.flags]

    def library(self, arch: str) -> str:
        """Returns the file name that `stitch_build` looks for."""
        return hashlib.sha256("\0".join([self.language, self.source, *self.options(arch)]).encode()).hexdigest() + ".so"


def raw_requests(tree: ast.Module) -> list[RawRequest]:
    """Returns the top-level `stitch_build` calls whose arguments are constants."""
    constants: dict[str, object] = {}
    requests: list[RawRequest] = []
    for statement in tree.body:
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "stitch_build":
                request = _request(node, constants)
                if request is not None and request not in requests and len(requests) < MAX_REQUESTS:
                    requests.append(request)
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name):
            constants[statement.targets[0].id] = _value(statement.value, constants)
    return requests


def _request(node: ast.Call, constants: dict[str, object]) -> RawRequest | None:
    names = ("language", "source", "flags")
    values: dict[str, object] = {"flags": ()}
    if len(node.args) > len(names) or any(isinstance(argument, ast.Starred) for argument in node.args):
        return None
    for name, argument in [*zip(names, node.args, strict=False), *((keyword.arg, keyword.value) for keyword in node.keywords)]:
        values[str(name)] = _value(argument, constants)
    language, source, flags = values.get("language"), values.get("source"), values.get("flags")
    if language not in ("cuda", "cpp") or not isinstance(source, str) or not isinstance(flags, (list, tuple)):
        return None
    if not all(isinstance(flag, str) for flag in flags):
        return None
    return RawRequest(str(language), source, tuple(flags))


def _value(node: ast.expr, constants: dict[str, object]) -> object:
    """Evaluates a string or a list of strings; returns null for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Name):
        return constants.get(node.id)
    if isinstance(node, (ast.List, ast.Tuple)):
        values = [_value(element, constants) for element in node.elts]
        return values if all(isinstance(value, str) for value in values) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _value(node.left, constants), _value(node.right, constants)
        return left + right if isinstance(left, str) and isinstance(right, str) else None
    return None
