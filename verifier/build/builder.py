"""The builder: imports a program so that its build requests compile, without a GPU, and hands over the libraries."""

# sandboxed: imports programs

from __future__ import annotations

import os
import time
from typing import Any

from verifier.build.inline import install_build
from verifier.channel import Channel, Frame
from verifier.party import describe, load_source

MAX_LIBRARIES = 256


class Builder:
    def __init__(self, channel: Channel, home: str):
        self.home = home

    def do_build(self, frame: Frame) -> dict[str, Any]:
        """Replies with the libraries as raw bytes one after another, and their names and sizes."""
        folder = os.path.join(self.home, "build")
        os.makedirs(folder, exist_ok=True)
        os.environ.update({"STITCH_BUILD_DIR": folder, **frame.message["variables"]})
        install_build(folder)
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
            for file in sorted(files):
                path = os.path.join(parent, file)
                if file.endswith(".so") and not os.path.islink(path) and len(names) < MAX_LIBRARIES:
                    with open(path, "rb") as library:
                        parts.append(library.read())
                    names.append((os.path.relpath(path, folder), len(parts[-1])))
        return {"type": "built", "seconds": seconds, "failure": failure, "artefacts": names, "raw": b"".join(parts)}
