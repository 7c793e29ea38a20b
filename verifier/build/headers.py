"""Precompiled headers for extension bindings. A separate builder creates them once per host. The judge owns them; every other process has
read-only access."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from verifier.build.light import BINDING_HEADER, precompiled_key
from verifier.channel import MAX_ARTEFACTS
from verifier.confinement.visible import INSIDE, bubblewrap
from verifier.devices.base import Bind
from verifier.hashes import sha256
from verifier.judge.asking import Party
from verifier.judge.party_failure import PartyFailure
from verifier.judge.pool import Pool, data_folder

KEPT = 6  # about 250 MB each
SHOWN = f"{INSIDE}/headers"
# Flags for which a builder is allowed to request a header. A builder controls only the flags, because the header is compiled in a sandbox that no
# program has entered.
_FLAG = re.compile(
    r"-O([0-3sg]|fast)?|-std=[\w+]+|-f(?!plugin)[\w=-]+|-m[\w=.-]+|-W[\w=+-]*|-w|-pthread|-g[0-3]?|-[DU]\w+(=[\w.\"]*)?|-isystem|/[\w./+-]+"
)
USUAL: tuple[list[str], ...] = ([], ["-O2"], ["-O3"])  # `extra_cflags` of most programs


@dataclass(frozen=True)
class Made:
    key: str
    seconds: float  # compilation time
    nbytes: int


class Headers:
    """The precompiled headers in a folder, stored as `folder/<versions>/<key>/stitch_binding.h` and `.gch`."""

    def __init__(self, data_dir: Path):
        top = data_folder(data_dir, "headers")
        script = Path(__file__).with_name("light.py").read_bytes()  # the header's text is cut from torch's headers in this folder
        ours = hashlib.sha256("\0".join([*_versions(), sys.prefix, sha256(script)]).encode()).hexdigest()[:24]
        self.folder = top / ours
        self.folder.mkdir(mode=0o700, exist_ok=True)
        for other in top.iterdir():  # folders for other versions of torch or the compiler
            if other != self.folder and not other.name.startswith("."):
                shutil.rmtree(other, ignore_errors=True)
        self.wanted: dict[str, list[str]] = {}
        self._work: threading.Thread | None = None
        # Hashing a few hundred megabytes takes about as long as the judge's import of torch.
        self._checking = threading.Thread(target=self._check, daemon=True)
        self._checking.start()

    @property
    def bind(self) -> Bind:
        return Bind(str(self.folder), SHOWN)

    @property
    def shown(self) -> str:
        """Returns the path at which a builder sees the folder."""
        return SHOWN if bubblewrap() else str(self.folder)

    def want(self, told: object) -> None:
        """Records flags for which a builder had no precompiled header. Invalid flags are dropped."""
        for flags in told if isinstance(told, list) else []:
            if not isinstance(flags, list) or not all(isinstance(flag, str) for flag in flags):
                continue
            flags = [flag for flag in flags if not flag.startswith("-DTORCH_EXTENSION_NAME=")]
            key = precompiled_key(flags)
            if all(_FLAG.fullmatch(flag) for flag in flags) and not (self.folder / key).exists() and len(self.wanted) < KEPT:
                self.wanted[key] = flags

    def prepare(self, pool: Pool, extra: tuple[list[str], ...] = USUAL) -> list[Made]:
        """Builds the missing headers for the standard flags, all in parallel. Raises `PartyFailure`."""
        party = pool.take("builder")
        try:
            message = {"extra": list(extra), "variables": party.device.variables("builder")}
            self.want(party.ask("flags", message, party.limits.build).message.get("flags"))
        finally:
            pool.give_back(party)
        wanted, self.wanted = list(self.wanted.values()), {}
        parties = [pool.take("builder") for _ in wanted]
        try:
            with ThreadPoolExecutor(max(len(parties), 1)) as threads:
                return list(threads.map(self._made, parties, wanted))
        finally:
            for party in parties:
                pool.give_back(party)

    def begin(self, pool: Pool) -> None:
        """Starts building one requested header in a separate thread. Call it only while nothing is being measured."""
        if not self.wanted or (self._work is not None and self._work.is_alive()):
            return
        key, flags = next(iter(self.wanted.items()))
        party = pool.take("builder")

        def work() -> None:
            try:
                self._made(party, flags)
            except (PartyFailure, OSError):
                pass  # without the header, compiling a binding takes a few seconds longer
            finally:
                self.wanted.pop(key, None)
                pool.give_back(party)

        self._work = threading.Thread(target=work, daemon=True)
        self._work.start()

    def wait(self) -> None:
        """Waits until the compiler is idle."""
        if self._work is not None:
            self._work.join()

    def _made(self, party: Party, flags: list[str]) -> Made:
        message = {"flags": flags, "variables": party.device.variables("builder")}
        frame = party.ask("precompile", message, party.limits.build, max_raw=MAX_ARTEFACTS)
        key = precompiled_key(flags)
        scratch = Path(tempfile.mkdtemp(dir=self.folder.parent, prefix=".new-"))
        (scratch / BINDING_HEADER).write_text(frame.text("text"))
        (scratch / f"{BINDING_HEADER}.gch").write_bytes(frame.raw)
        (scratch / "index.json").write_text(json.dumps({"nbytes": len(frame.raw), "sha256": sha256(frame.raw)}))
        scratch.chmod(0o755)
        try:
            os.rename(scratch, self.folder / key)
        except OSError:  # another judge was first
            shutil.rmtree(scratch, ignore_errors=True)
        entries = sorted(self._entries(), key=lambda entry: entry.stat().st_mtime)
        for old in entries[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)
        seconds = frame.message.get("seconds")
        return Made(key, round(float(seconds), 3) if isinstance(seconds, (int, float)) else 0.0, len(frame.raw))

    def checked(self) -> Headers:
        """Checks every entry against its hash, then returns this object."""
        self._checking.join()
        return self

    def count(self) -> int:
        return len(self._entries())

    def _entries(self) -> list[Path]:
        return [entry for entry in self.folder.iterdir() if entry.is_dir()]

    def _check(self) -> None:
        """Removes truncated or damaged entries, which are rebuilt the next time they are requested."""
        for entry in self._entries():
            try:
                index = json.loads((entry / "index.json").read_text())
                data = entry / f"{BINDING_HEADER}.gch"
                with open(data, "rb") as file:
                    sound = data.stat().st_size == index["nbytes"] and hashlib.file_digest(file, "sha256").hexdigest() == index["sha256"]
            except (OSError, ValueError, KeyError, TypeError):
                sound = False
            if not sound:
                shutil.rmtree(entry, ignore_errors=True)


def _versions() -> list[str]:
    """Returns the versions of torch, Python and the compiler. It does not import torch, because that takes seconds."""
    import importlib.metadata  # runs in a thread while parties are being started

    try:
        torch = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        torch = ""
    compiler = shutil.which("g++") or shutil.which("c++") or ""
    done = subprocess.run([compiler, "-v"], capture_output=True, text=True, timeout=30) if compiler else None
    return [torch, platform.python_version(), done.stderr if done else ""]
