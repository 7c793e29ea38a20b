"""A party that only compiles raw kernels. It does not need torch, so it starts compiling while other parties are still importing torch."""

# sandboxed: compiles what programs ask for

from __future__ import annotations

import concurrent.futures
import os
import shutil
import subprocess
import tempfile
from typing import Any

from verifier.build.raw import RawRequest
from verifier.build.steps import run_nvcc
from verifier.channel import Channel, Frame


class Compiler:
    def __init__(self, channel: Channel, home: str):
        self.home = home

    def do_compile(self, frame: Frame) -> dict[str, Any]:
        """Returns the libraries of the requests that compile. It does not report failures; the program's own request reports the error."""
        os.environ.update(frame.message["variables"])
        requests = [RawRequest(language, source, tuple(flags)) for language, source, flags in frame.message["requests"]]
        with concurrent.futures.ThreadPoolExecutor(max(len(requests), 1)) as pool:
            libraries = list(pool.map(lambda request: raw_library(request, self.home), requests))
        made = [(name, data) for name, data, _ in libraries if data]
        return {"type": "compiled", "artefacts": [(name, len(data)) for name, data in made], "raw": b"".join(data for _, data in made)}


def raw_library(request: RawRequest, folder: str) -> tuple[str, bytes, str]:
    """Returns the library's name, its bytes (empty if compilation fails) and, after a failure, the embedded helper's message."""
    arch = os.environ.get("STITCH_CUDA_ARCH", "native")
    name = request.library(arch)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        unit = os.path.join(scratch, "kernels.cu" if request.language == "cuda" else "kernels.cpp")
        with open(unit, "w") as file:
            file.write(request.source)
        compiler = (shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc") if request.language == "cuda" else (shutil.which("g++") or "g++")
        command = [compiler, *request.options(arch), unit, "-o", unit + ".so"]
        if request.language == "cuda":
            step = run_nvcc(command, scratch)
            code, output = step.returncode, step.output
        else:
            done = subprocess.run(command, capture_output=True, text=True)
            code, output = done.returncode, done.stderr
        if code != 0:
            return name, b"", f"{os.path.basename(compiler)} failed:\n{output}"
        with open(unit + ".so", "rb") as file:
            return name, file.read(), ""
