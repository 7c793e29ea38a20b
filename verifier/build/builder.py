"""The builder: imports a program without a GPU to trigger its build requests, compiles them, and hands over the libraries."""

# sandboxed: imports programs

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import time
from typing import Any

from verifier.build.compiler import raw_library
from verifier.build.inline import EXTENSION, Workshop, nothing_loaded
from verifier.build.raw import RawRequest
from verifier.build.request import BuildRequest
from verifier.channel import Channel, Frame
from verifier.parties.describing import describe
from verifier.parties.loading import load_source
from verifier.startup import cutlass

MAX_LIBRARIES = 256


class Builder:
    def __init__(self, channel: Channel, home: str):
        self.home = home

    def do_build(self, frame: Frame) -> dict[str, Any]:
        """Replies with the concatenated bytes of the libraries, their names and sizes, the requested builds, notes on how each one was built, and the
        C++ flags that had no precompiled header. `requests` lists builds that the program requests later; they are compiled in the same call."""
        folder = self._folder(frame)
        at = 0
        for name, size in frame.message["artefacts"]:  # raw-kernel libraries that are already compiled
            with open(os.path.join(folder, name), "wb") as file:
                file.write(frame.raw[at : at + size])
            at += size
        workshop = Workshop(folder, self.home, frame.text("headers"))
        workshop.install()
        begin = time.monotonic()
        failure = None
        try:
            load_source("program", frame.text("source"), self.home)
        except BaseException as error:
            failure = describe(error)
        for data in frame.message.get("requests", []):
            failure = self._later(workshop, BuildRequest.read(data)) or failure
        return {"type": "built", "seconds": time.monotonic() - begin, "failure": failure, **self._made(workshop)}

    def do_later(self, frame: Frame) -> dict[str, Any]:
        """Builds one request (sent as JSON in the raw bytes) that a program made in a runner, and replies as `do_build` does. The program itself is
        not loaded."""
        workshop = Workshop(self._folder(frame), self.home, frame.text("headers"))
        request = BuildRequest.read(json.loads(frame.raw))
        begin = time.monotonic()
        failure = self._later(workshop, request)
        return {"type": "built", "seconds": time.monotonic() - begin, "failure": failure, **self._made(workshop)}

    def _folder(self, frame: Frame) -> str:
        folder = os.path.join(self.home, "build")
        os.makedirs(folder, exist_ok=True)
        os.environ.update({"STITCH_BUILD_DIR": folder, **frame.message["variables"]})
        cutlass.show(self.home)
        return folder

    def _later(self, workshop: Workshop, request: BuildRequest) -> dict[str, Any] | None:
        """Builds a later request. Returns null if the build produces a library; otherwise, returns the reason why it does not."""
        before = dict(os.environ)
        os.environ.update(request.environment(os.path.join(self.home, "inline-" + request.key)))
        try:
            if request.kind == "stitch_build":
                self._raw(workshop, request)
                return None
            extension = importlib.import_module(EXTENSION)
            if not workshop.plain:
                workshop.replace(extension)
            with nothing_loaded(extension):
                workshop.make(request)
        except Exception as error:
            return describe(error)
        finally:
            os.environ.clear()
            os.environ.update(before)
        return None

    def _raw(self, workshop: Workshop, request: BuildRequest) -> None:
        """Builds a library in the same way as the embedded helper. Raises `RuntimeError`."""
        begin = time.monotonic()
        raw = RawRequest(request.arguments["language"], request.arguments["source"], tuple(request.arguments["flags"]))
        name, data, output = raw_library(raw, self.home)
        workshop.add(request, begin, output if not data else "")
        if not data:
            raise RuntimeError(output)
        with open(os.path.join(workshop.folder, name), "wb") as file:
            file.write(data)

    def _made(self, workshop: Workshop) -> dict[str, Any]:
        names: list[tuple[str, int]] = []
        parts = []
        for parent, _, files in sorted(os.walk(workshop.folder)):
            for entry in sorted(files):
                path = os.path.join(parent, entry)
                if entry.endswith(".so") and not os.path.islink(path) and len(names) < MAX_LIBRARIES:
                    with open(path, "rb") as library:
                        parts.append(library.read())
                    names.append((os.path.relpath(path, workshop.folder), len(parts[-1])))
        told = {"notes": workshop.accelerator.notes, "wanted": workshop.accelerator.wanted[:8], "asked": [one.row() for one in workshop.asked[:64]]}
        return {"artefacts": names, **told, "raw": b"".join(parts)}

    def do_flags(self, frame: Frame) -> dict[str, Any]:
        """Returns torch's C++ flags for each list of `extra` flags."""
        from torch.utils import cpp_extension

        from verifier.build.extension import read_ninja  # only for a host's first start; every builder starts sooner without it

        os.environ.update(frame.message["variables"])
        flags: list[list[str]] = []
        cpp_extension.verify_ninja_availability = lambda: None  # reads only the file that Ninja would run
        cpp_extension._run_ninja_build = lambda folder, *rest, **named: flags.append(read_ninja(folder).words("cflags"))
        cpp_extension._import_module_from_library = lambda *rest: None
        for number, extra in enumerate(frame.message["extra"]):
            folder = os.path.join(self.home, f"flags{number}")
            os.makedirs(folder)
            cpp_extension.load_inline(f"flags{number}", "", functions=[], extra_cflags=extra, build_directory=folder)
        return {"type": "flags", "flags": flags}

    def do_precompile(self, frame: Frame) -> dict[str, Any]:
        """Precompiles the slim header for C++ units with the given `flags`. Returns the header's text and its compiled form as raw bytes. No program
        is loaded."""
        from torch.utils import cpp_extension

        from verifier.build.light import BINDING_HEADER, binding_header  # as above

        os.environ.update(frame.message["variables"])
        folder = os.path.join(self.home, "precompiled")
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, BINDING_HEADER)
        include = cpp_extension.include_paths()[0]
        text = binding_header(include)
        with open(path, "w") as file:
            file.write(text)
        begin = time.monotonic()
        command = [cpp_extension.get_cxx_compiler(), *frame.message["flags"], "-x", "c++-header", path, "-o", path + ".gch"]
        subprocess.run(command, check=True, capture_output=True, text=True)
        seconds = time.monotonic() - begin
        with open(path + ".gch", "rb") as file:
            raw = file.read()
        shutil.rmtree(folder)
        return {"type": "precompiled", "text": text, "seconds": seconds, "raw": raw}
