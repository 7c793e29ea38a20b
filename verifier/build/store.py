"""The judge's content-addressed store of builder output. Each entry is written once and never by a party. This module also trims compiler output to
the helpful parts."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from verifier.build.artefacts import Artefacts, checked_asked, checked_index
from verifier.hashes import sha256
from verifier.source import Problem

_ERROR = re.compile(
    r"^(?P<file>[^\s:(]+)[:(](?P<line>\d+)(?:[:,](?P<column>\d+))?\)?:\s*(?P<kind>fatal error|error|catastrophic error)\s*:?\s*(?P<text>.*)$"
)
# Errors that have no source location. They come from the assembler, the linker, or a compiler that rejects its own options.
_PLACELESS = re.compile(
    r"^ptxas\s.*?\b(?:error|fatal)\s*:\s*(?P<ptxas>.*)$|(?P<linker>undefined (?:reference to|symbol).*)$"
    r"|^(?:nvcc|cc1plus|g\+\+|clang\S*)\s*:?\s*(?:fatal )?(?:error|fatal)\s*:\s*(?P<tool>.*)$"
)
MAX_TEXT = 4000
MAX_BYTES = 4 << 30
STALE_SECONDS = 3600


class Store:
    """A store at `folder/<key>/`. The key covers the program's source (which contains the flags), the compiler, torch, the processor and the
    architecture. Judges on one host share the store; parties never see it. It holds at most `limit` bytes and evicts the least recently used entry
    first."""

    def __init__(self, folder: Path, *versions: str, limit: int = MAX_BYTES):
        self.folder = folder
        self.versions = versions
        self.limit = limit

    def key(self, program_sha: str) -> str:
        return hashlib.sha256("\0".join([program_sha, *self.versions]).encode()).hexdigest()

    def get(self, program_sha: str) -> Artefacts | None:
        entry = self.folder / self.key(program_sha)
        try:
            meta = json.loads((entry / "index.json").read_text())
            data = (entry / "libraries").read_bytes()
            index = checked_index(meta["index"], len(data))
            sound = meta["sha256"] == _digest(index, data)
            seconds, asked = float(meta["seconds"]), checked_asked(meta.get("asked", []))
            os.utime(entry)
        except FileNotFoundError:
            if not entry.exists():
                return None
            sound = False
        except (OSError, ValueError, TypeError, KeyError):
            sound = False
        if not sound:  # an interrupted write, a damaged disk or a modified file: the entry is built again
            shutil.rmtree(entry, ignore_errors=True)
            return None
        return Artefacts(index, data, seconds, asked)

    def put(self, program_sha: str, artefacts: Artefacts, anew: bool = False) -> None:
        """Stores an entry. If `anew` is set, it replaces an existing entry that holds less."""
        entry = self.folder / self.key(program_sha)
        scratch = Path(tempfile.mkdtemp(dir=self.folder, prefix=".new-"))
        (scratch / "libraries").write_bytes(artefacts.data)
        told = [one.row() for one in artefacts.asked]
        meta = {"index": artefacts.index, "sha256": _digest(artefacts.index, artefacts.data), "seconds": artefacts.seconds, "asked": told}
        (scratch / "index.json").write_text(json.dumps(meta))
        if anew:
            shutil.rmtree(entry, ignore_errors=True)
        try:
            os.rename(scratch, entry)
        except OSError:  # another judge was first
            shutil.rmtree(scratch, ignore_errors=True)
        self._trim()

    def _trim(self) -> None:
        """Evicts entries. Other judges may evict concurrently, so entries may vanish in the meantime."""
        entries: list[tuple[float, int, Path]] = []
        now = time.time()
        for entry in self.folder.iterdir():
            try:
                status = entry.stat()
                if entry.name.startswith("."):
                    if now - status.st_mtime > STALE_SECONDS:  # left by a judge that was killed while writing
                        shutil.rmtree(entry, ignore_errors=True)
                    continue
                entries.append((status.st_mtime, (entry / "libraries").stat().st_size, entry))
            except OSError:
                continue
        total = sum(size for _, size, _ in entries)
        for _, size, entry in sorted(entries):
            if total <= self.limit:
                break
            shutil.rmtree(entry, ignore_errors=True)
            total -= size


def _digest(index: list[tuple[str, int]], data: bytes) -> str:
    """Returns a digest that also covers the names, because the names determine the position of each library in the data."""
    return sha256(json.dumps([list(item) for item in index]).encode() + data)


def trimmed(text: str) -> str:
    """Keeps compiler errors together with their lines; drops warnings, notes and include chains."""
    kept: list[str] = []
    keep = False
    for line in text.splitlines():
        if _ERROR.match(line) or _PLACELESS.search(line) or re.search(r"\bld returned\b|: error\b", line):
            keep = True
        elif re.search(r":\d+(:\d+)?: (warning|note)|^In file included|^\s+from |: In (member )?(function|instantiation)|: At global scope", line):
            keep = False
        if keep:
            kept.append(line.rstrip())
    result = "\n".join(said_once(kept)) or text.strip()
    return result if len(result) <= MAX_TEXT else result[:MAX_TEXT] + "\n..."


def said_once(lines: Sequence[str]) -> list[str]:
    """Drops errors that have no source location and differ from an earlier error only in numbers. ptxas repeats such errors for every instruction."""
    seen: Counter[str] = Counter()
    kept: list[str] = []
    for line in lines:
        said = re.sub(r"\d+", "0", line)
        if _PLACELESS.search(line) is not None and not _ERROR.match(line):
            seen[said] += 1
            if seen[said] > 1:
                continue
        kept.append(line)
    return [f"{line} (and {seen[said] - 1} more)" if seen[said := re.sub(r"\d+", "0", line)] > 1 else line for line in kept]


def compiler_problems(text: str, program_source: str) -> list[Problem]:
    """Returns the first errors and, if it can be found, the program line that contains the kernel's source."""
    literals = [
        (node.lineno, node.value)
        for node in ast.walk(ast.parse(program_source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.count("\n") > 1
    ]
    lines = program_source.splitlines()
    problems: list[Problem] = []
    for output in text.splitlines():
        match = _ERROR.match(output)
        if match is None:
            if (placeless := _PLACELESS.search(output)) is not None:
                problems.append(Problem(line=None, message=placeless[str(placeless.lastgroup)].strip()[:400]))
            continue
        number = int(match["line"])
        line = None
        for begin, literal in literals:
            inner = literal.splitlines()
            at = begin + number - 1
            if number <= len(inner) and at <= len(lines) and inner[number - 1].strip() and lines[at - 1].strip().endswith(inner[number - 1].strip()):
                line = at
                break
        problems.append(Problem(line=line, column=int(match["column"]) if match["column"] and line else None, message=match["text"][:400]))
        if len(problems) == 5:
            break
    return problems
