"""A party that only compiles raw kernels. It needs no torch, so it is at work before any other party has imported it."""

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
        """The libraries of the requests that compile; the others are left to the program, whose own request then says why they do not."""
        os.environ.update(frame.message["variables"])
        requests = [RawRequest(language, source, tuple(flags)) for language, source, flags in frame.message["requests"]]
        with concurrent.futures.ThreadPoolExecutor(max(len(requests), 1)) as pool:
            libraries = list(pool.map(self._library, requests))
        made = [(name, data) for name, data in libraries if data]
        return {"type": "compiled", "artefacts": [(name, len(data)) for name, data in made], "raw": b"".join(data for _, data in made)}

    def _library(self, request: RawRequest) -> tuple[str, bytes]:
        arch = os.environ.get("STITCH_CUDA_ARCH", "native")
        name = request.library(arch)
        with tempfile.TemporaryDirectory(dir=self.home) as scratch:
            unit = os.path.join(scratch, "kernels.cu" if request.language == "cuda" else "kernels.cpp")
            with open(unit, "w") as file:
                file.write(request.source)
            command = [*request.options(arch), unit, "-o", unit + ".so"]
            if request.language == "cuda":
                code = run_nvcc([shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc", *command], scratch).returncode
            else:
                code = subprocess.run([shutil.which("g++") or "g++", *command], capture_output=True).returncode
            if code != 0:
                return name, b""
            with open(unit + ".so", "rb") as file:
                return name, file.read()
