"""The builder: imports a program so that its build requests compile, without a GPU, and hands over the libraries."""

# sandboxed: imports programs

from __future__ import annotations

import os
import shutil
import subprocess
import time
from typing import Any

from verifier.build.inline import install_build
from verifier.channel import Channel, Frame
from verifier.parties.loading import describe, load_source

MAX_LIBRARIES = 256


class Builder:
    def __init__(self, channel: Channel, home: str):
        self.home = home

    def do_build(self, frame: Frame) -> dict[str, Any]:
        """Replies with the libraries as raw bytes one after another, their names and sizes, how they were made, and the C++ flags for which a
        precompiled header was missing."""
        folder = os.path.join(self.home, "build")
        os.makedirs(folder, exist_ok=True)
        at = 0
        for name, size in frame.message["artefacts"]:  # raw libraries that are compiled already
            with open(os.path.join(folder, name), "wb") as file:
                file.write(frame.raw[at : at + size])
            at += size
        os.environ.update({"STITCH_BUILD_DIR": folder, **frame.message["variables"]})
        accelerator = install_build(folder, frame.text("headers"))
        begin = time.monotonic()
        failure = None
        try:
            load_source("program", frame.text("source"), self.home)
        except BaseException as error:
            failure = describe(error)
        seconds = time.monotonic() - begin
        names: list[tuple[str, int]] = []
        parts = []
        for parent, _, files in sorted(os.walk(folder)):
            for entry in sorted(files):
                path = os.path.join(parent, entry)
                if entry.endswith(".so") and not os.path.islink(path) and len(names) < MAX_LIBRARIES:
                    with open(path, "rb") as library:
                        parts.append(library.read())
                    names.append((os.path.relpath(path, folder), len(parts[-1])))
        told = {"notes": accelerator.notes, "wanted": accelerator.wanted[:8]}
        return {"type": "built", "seconds": seconds, "failure": failure, "artefacts": names, **told, "raw": b"".join(parts)}

    def do_flags(self, frame: Frame) -> dict[str, Any]:
        """torch's flags for C++ units, for each list of `extra` ones."""
        from torch.utils import cpp_extension

        from verifier.build.extension import read_ninja

        os.environ.update(frame.message["variables"])
        flags: list[list[str]] = []
        cpp_extension.verify_ninja_availability = lambda: None  # only the file that it would run is read
        cpp_extension._run_ninja_build = lambda folder, *rest, **named: flags.append(read_ninja(folder).words("cflags"))
        cpp_extension._import_module_from_library = lambda *rest: None
        for number, extra in enumerate(frame.message["extra"]):
            folder = os.path.join(self.home, f"flags{number}")
            os.makedirs(folder)
            cpp_extension.load_inline(f"flags{number}", "", functions=[], extra_cflags=extra, build_directory=folder)
        return {"type": "flags", "flags": flags}

    def do_precompile(self, frame: Frame) -> dict[str, Any]:
        """The slim header of C++ units, precompiled under `flags`: its text, and the compiler's form of it as raw bytes. No program is here."""
        from torch.utils import cpp_extension

        from verifier.build.light import BINDING_HEADER, binding_header

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
