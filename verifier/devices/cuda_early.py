"""The first second of a party that is given its role at once: the GPU's context, and an observer's CUPTI, come up while torch is being imported.

Nothing rests on it: what does not come up here comes up later, in the ordinary way.
"""

# sandboxed: runs before any stranger's source

from __future__ import annotations

import contextlib
import ctypes
import glob
import os
import re
import sys
import threading
from typing import Any

from verifier.devices import cuda_driver

_CONCURRENT_KERNEL = 10  # CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL


class Early:
    """`wanted` as `Device.early` says. The driver's calls release the interpreter's lock."""

    def __init__(self, wanted: dict[str, Any]):
        self._wanted = wanted
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def wait(self) -> None:
        self._thread.join()

    def _work(self) -> None:
        if self._wanted.get("processors"):
            with contextlib.suppress(OSError):  # as the party itself: the driver's own threads inherit it
                os.sched_setaffinity(0, self._wanted["processors"])
        with contextlib.suppress(cuda_driver.CudaError, OSError, AttributeError):
            cuda_driver.use_primary_context(0)
            if self._wanted.get("profiler"):
                start_cupti()


def start_cupti() -> None:
    """CUPTI's first start takes seconds, in whichever thread; torch's profiler then finds it started."""
    path = cupti_library()
    if path:
        library = ctypes.CDLL(path)
        if library.cuptiActivityEnable(_CONCURRENT_KERNEL) == 0:
            library.cuptiActivityDisable(_CONCURRENT_KERNEL)


def cupti_library() -> str:
    """The one that torch's own library will be linked to, or "": beside NVIDIA's other packages, of the CUDA that torch was built for."""
    folders = {os.path.realpath(folder) for folder in sys.path if folder}
    built = {found[1] for folder in folders if (found := re.search(r"^cuda\b[^=]*= '(\d+)", _text(os.path.join(folder, "torch/version.py")), re.M))}
    names = [f"libcupti.so.{major}" for major in built]
    found = {path for folder in folders for name in names for path in glob.glob(os.path.join(folder, "nvidia/*/lib", name))}
    return found.pop() if len(found) == 1 else ""


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""
