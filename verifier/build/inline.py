"""`torch.utils.cpp_extension.load_inline` and `load` as requests: the builder compiles them, the runner only looks them up."""

# sandboxed: loads libraries that programs asked for

from __future__ import annotations

import glob
import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from verifier.build.extension import Accelerator

EXTENSION = "torch.utils.cpp_extension"


def request_key(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> str:
    """Both sides name a request by what is compiled, not by where or how loudly."""
    kept = {key: value for key, value in keywords.items() if key not in ("build_directory", "verbose")}
    return hashlib.sha256(json.dumps([arguments, kept], sort_keys=True, default=str).encode()).hexdigest()[:32]


def install_build(folder: str, headers: str = "") -> Accelerator:
    """In the builder: compiles into `folder`, and keeps only the library of each request. `headers`: the folder of precompiled ones."""
    accelerator = Accelerator(headers)

    def replace(extension: ModuleType) -> None:
        accelerator.install(extension)
        for name in ("load_inline", "load"):
            setattr(extension, name, _building(getattr(extension, name), folder))

    _with_extension(replace)
    return accelerator


def _building(plain: Callable[..., Any], folder: str) -> Callable[..., Any]:
    def request(*arguments: Any, **keywords: Any) -> Any:
        key = request_key(arguments, keywords)
        scratch = os.path.join(os.path.dirname(folder), "inline-" + key)
        os.makedirs(scratch, exist_ok=True)
        keywords["build_directory"] = scratch
        try:
            module = plain(*arguments, **keywords)
        finally:
            for library in glob.glob(os.path.join(scratch, "*.so")):
                os.makedirs(os.path.join(folder, key), exist_ok=True)
                os.replace(library, os.path.join(folder, key, os.path.basename(library)))
        return module

    return request


def install_lookup(folder: str, wrap: Callable[[ModuleType], ModuleType] = lambda module: module) -> None:
    """In the runner: finds the library that the builder made for the same request."""

    def find(*arguments: Any, **keywords: Any) -> Any:
        found = glob.glob(os.path.join(folder, request_key(arguments, keywords), "*.so"))
        if not found:
            raise RuntimeError("this source was not built beforehand: call load_inline or load when the module is imported")
        name = os.path.basename(found[0]).removesuffix(".so")
        if keywords.get("is_python_module", True):
            spec = importlib.util.spec_from_file_location(name, found[0])
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            sys.modules[name] = module
            return wrap(module)
        import torch

        torch.ops.load_library(found[0])
        return found[0]

    def replace(extension: ModuleType) -> None:
        vars(extension).update(load_inline=find, load=find)

    _with_extension(replace)


def _with_extension(then: Callable[[ModuleType], None]) -> None:
    """Now, or once the program imports it."""
    if EXTENSION in sys.modules:
        then(sys.modules[EXTENSION])
    else:
        sys.meta_path.insert(0, OnImport(EXTENSION, then))


class OnImport(importlib.abc.MetaPathFinder):
    """Calls `then` with the module `name` once something has imported it: most programs never do, and it takes long."""

    def __init__(self, name: str, then: Callable[[ModuleType], None]):
        self.name = name
        self.then = then

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.name:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def executed(module: ModuleType) -> None:
            execute(module)
            self.then(module)

        spec.loader.exec_module = executed  # type: ignore[method-assign]  # of this one loader
        return spec
