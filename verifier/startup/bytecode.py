"""Byte code for hosts whose interpreter stores none next to its packages. On such hosts, each process would compile a thousand torch modules at
startup, which takes 3 s of processor time.

`python -m verifier prepare`, or an idle serving judge, creates it once under `data_dir`; judges are started with it, and expose it to their parties
as read-only. Python itself ignores byte code if its source has a different date or size. After an upgrade of Python, torch or this package, all byte
code is rebuilt, because Python looks for it in only one place.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from verifier.devices.base import Bind

SHOWN = "/opt/stitchwork-bytecode"  # its path in a sandbox
FOLDER, MADE = "bytecode", "made"
SECONDS = 240.0
# Imports what judges and parties import at startup, and what parties import only for some programs and baselines. This process ends with the process
# that started it.
_IMPORTS = """
import ctypes, importlib, os, pkgutil, sys
ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
sys.path.insert(0, sys.argv[1])
import verifier
names = ["torch.utils.cpp_extension", "torch.profiler", "torch._dynamo", "torch._inductor.compile_fx", "triton", "sympy", "numpy"]
names += [module.name for module in pkgutil.walk_packages(verifier.__path__, "verifier.") if not module.name.endswith("__main__")]
for name in names:
    try:
        importlib.import_module(name)
    except Exception:
        pass
"""
_work: threading.Thread | None = None


def lacking() -> bool:
    """Returns whether a party with this interpreter would find no byte code for torch."""
    source = torch_source()
    return bool(source) and not os.path.exists(os.path.join(os.path.dirname(source), "__pycache__", f"__init__.{sys.implementation.cache_tag}.pyc"))


def torch_source() -> str:
    spec = importlib.util.find_spec("torch")
    return (spec.origin or "") if spec is not None else ""


def signature() -> str:
    """Returns a signature of the software for which byte code is generated."""
    source = torch_source()
    newest = max(path.stat().st_mtime_ns for path in Path(__file__).parents[1].rglob("*.py"))
    return f"{sys.version} {source} {os.stat(source).st_mtime_ns if source else 0} {newest}"


def options(data_dir: Path) -> list[str]:
    """Returns the options for an interpreter that uses the output of `make`; empty if there is no output, or no need for it."""
    folder = data_dir.resolve() / FOLDER
    with contextlib.suppress(OSError):
        if (folder / MADE).read_text() == signature() and lacking():
            return ["-X", f"pycache_prefix={folder}"]
    return []


def own() -> str | None:
    """Returns the folder of this process's byte code, if it was started with `options`."""
    prefix = sys.pycache_prefix
    return prefix if prefix and os.path.exists(os.path.join(prefix, MADE)) else None


def bind() -> list[Bind]:
    """Returns the bind that exposes this process's byte code to a party; empty if the process was started without byte code."""
    return [Bind(folder, SHOWN)] if (folder := own()) else []


def party_options(wrapped: bool) -> list[str]:
    """Returns the options for a party's interpreter, which writes no byte code."""
    return ["-B", *(["-X", f"pycache_prefix={SHOWN if wrapped else folder}"] if (folder := own()) else [])]


def make(data_dir: Path) -> str:
    """Generates the byte code and returns the outcome as a sentence."""
    from verifier.confinement.visible import INSIDE, PACKAGE, path_folders  # a judge's start only asks for options, without the folders

    folder = data_dir.resolve() / FOLDER
    if not lacking():
        (folder / MADE).unlink(missing_ok=True)
        return "byte code lies beside torch"
    folder.mkdir(mode=0o700, exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if name in ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "HOME")}
    command = [sys.executable, "-X", f"pycache_prefix={folder}", "-c", _IMPORTS, str(PACKAGE.parent)]
    try:
        made_for = signature()
        subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=SECONDS, check=True)
        # Some of the folders have different paths in a sandbox.
        moved = {str(PACKAGE): f"{INSIDE}/verifier"} | {path: f"{INSIDE}/path{index}" for index, path in enumerate(path_folders())}
        for source, target in moved.items():
            if (folder / source.lstrip("/")).is_dir():
                shutil.copytree(folder / source.lstrip("/"), folder / target.lstrip("/"), dirs_exist_ok=True, copy_function=_put)
        count = sum(len(files) for _, _, files in os.walk(folder))
        (folder / MADE).write_text(made_for)
    except subprocess.CalledProcessError as error:
        return f"no byte code: the process that imports torch ended with exit status {error.returncode}"
    except subprocess.TimeoutExpired:
        return f"no byte code: importing torch took longer than {SECONDS:.0f} s"
    except OSError as error:
        return f"no byte code: {error}"
    return f"byte code of {count} modules"


def _put(source: str, target: str) -> None:
    """Puts a copy into place atomically."""
    scratch = f"{target}.{os.getpid()}"
    shutil.copy2(source, scratch)
    os.replace(scratch, target)


def begin(data_dir: Path) -> None:
    """Generates the byte code once, in a thread of an idle judge; parties started afterwards use it."""
    global _work
    if _work is not None or own() or not lacking():
        return

    def work() -> None:
        make(data_dir)
        if options(data_dir):
            sys.pycache_prefix = str(data_dir.resolve() / FOLDER)

    _work = threading.Thread(target=work, daemon=True)
    _work.start()


def wait(called_off: Callable[[], bool] = lambda: False) -> None:
    while _work is not None and _work.is_alive() and not called_off():
        _work.join(0.1)
