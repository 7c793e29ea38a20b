"""Determines who owns the code at an address in a process. The judge reads the mappings from /proc.

The program's own code is recognised by its bytes, not by a file name: the mapping must equal a library that the builder produced. Any other code that
is in a place where a program can write, or that is in no file at all, counts as a library's. A library's generated code also counts as the library's.
"""

from __future__ import annotations

import enum
import os
import re
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

from verifier.build.artefacts import Artefacts
from verifier.integrity.artefacts import Code, read_code


class Kind(enum.IntEnum):
    """The owner of code. UNKNOWN is code that was mapped after the mappings were read. `sampler.c` refers to NEUTRAL by its number."""

    UNKNOWN = 0
    OWN = 1
    LIBRARY = 2
    NEUTRAL = 3  # works on behalf of any caller, so its time is attributed to the caller
    IDLE = 4  # a thread pool, so time spent there is waiting
    HOST = 5  # the interpreter and the verifier's own code, which are neither the program's arithmetic nor a library's
    # libffi counts as a library. What Python calls through it is either the program's own code, or a function of another library: the C library's
    # `memmove` and `qsort` are attributed to their caller.


_IDLE = re.compile(r"lib(?:gomp|iomp5?|omp|tbb)\b|lib(?:gomp|iomp5|omp)[-.]")
_NEUTRAL = re.compile(r"(?:lib(?:c|m|mvec|pthread|dl|rt|gcc_s|stdc\+\+|quadmath)|ld-linux[-\w]*|ld)[-.](?:so|\d)")
_HOST = re.compile(r"^(?:python[\d.]*|libpython[\d.]+\S*|_ctypes\S*|clock(?:-\w+)?\.so)$")
_LINE = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) (\S+) ([0-9a-f]+) \S+ (\d+)\s*(.*)$")
LARGEST = 64 << 20  # maximum size of a library whose bytes are compared


@dataclass(frozen=True)
class Mapping:
    """Executable memory from `begin` to `end`. `offset` is its offset in the file, and `library` is the number of the builder's library that it
    belongs to."""

    begin: int
    end: int
    offset: int
    path: str
    kind: Kind
    library: int | None = None


class Mapped:
    """The executable memory of process `pid`. `home` is where the program can write, as the process sees it. With `wrapped`, the process has a
    private file system there. Reading again is cheap because known mappings keep their kind."""

    def __init__(self, pid: int, home: str, wrapped: bool, artefacts: Artefacts):
        self.pid = pid
        self.writable = (home.rstrip("/") + "/", "/dev/", "/memfd:", "/proc/")
        self.wrapped = wrapped
        self.codes: list[Code] = []
        at = 0
        for _, size in artefacts.index:
            self.codes.append(read_code(artefacts.data[at : at + size]))
            at += size
        self.mappings: list[Mapping] = []
        self._begins: list[int] = []

    def read(self) -> list[Mapping]:
        """Reads the mappings. Raises `OSError` if the process is gone, or if the judge is not permitted to inspect it."""
        known = {(one.begin, one.end, one.path): one for one in self.mappings}
        found = []
        with open(f"/proc/{self.pid}/maps", encoding="utf-8", errors="replace") as file:
            for line in file:
                match = _LINE.match(line.rstrip("\n"))
                if match is None or "x" not in match[3]:
                    continue
                begin, end, path = int(match[1], 16), int(match[2], 16), match[6]
                one = known.get((begin, end, path)) or self._mapping(begin, end, int(match[4], 16), int(match[5]), path)
                found += self._without_stubs(one) if one.library is not None else [one]
        self.mappings, self._begins = found, [one.begin for one in found]
        return found

    def at(self, address: int) -> Mapping | None:
        number = bisect_right(self._begins, address) - 1
        return self.mappings[number] if number >= 0 and address < self.mappings[number].end else None

    def _mapping(self, begin: int, end: int, offset: int, inode: int, path: str) -> Mapping:
        if path == "[vdso]":
            return Mapping(begin, end, offset, path, Kind.NEUTRAL)
        number = self._made(begin, end, offset)
        if number is not None:
            return Mapping(begin, end, offset, path, Kind.OWN, number)
        return Mapping(begin, end, offset, path, self._kind(path, inode))

    def _without_stubs(self, own: Mapping) -> list[Mapping]:
        """Excludes the stubs that jump to functions in other libraries. They are attributed to their callers, and the functions that they call may be
        as well."""
        parts, begin = [], own.begin
        for offset, size in self.codes[own.library].stubs if own.library is not None else ():
            at = own.begin + offset - own.offset
            if own.begin <= at and at + size <= own.end:
                parts += [
                    Mapping(begin, at, own.offset + begin - own.begin, own.path, Kind.OWN, own.library),
                    Mapping(at, at + size, offset, own.path, Kind.NEUTRAL),
                ]
                begin = at + size
        parts.append(Mapping(begin, own.end, own.offset + begin - own.begin, own.path, Kind.OWN, own.library))
        return [part for part in parts if part.begin < part.end]

    def _kind(self, path: str, inode: int) -> Kind:
        """Classifies a mapping. A name counts only if the program could not have placed the file there itself."""
        if not path.startswith("/") or (path.startswith(self.writable) and not self._same(path, inode)):
            return Kind.LIBRARY
        name = os.path.basename(path)
        for pattern, kind in ((_IDLE, Kind.IDLE), (_NEUTRAL, Kind.NEUTRAL), (_HOST, Kind.HOST)):
            if pattern.match(name):
                return kind
        return Kind.LIBRARY

    def _same(self, path: str, inode: int) -> bool:
        """Returns whether a file in the sandbox is the host's own. A check is needed because the interpreter may itself be under /tmp."""
        try:
            return self.wrapped and os.stat(path).st_ino == inode
        except OSError:
            return False

    def _made(self, begin: int, end: int, offset: int) -> int | None:
        """Returns the number of the builder's library that contains this code byte for byte."""
        for number, code in enumerate(self.codes):
            wanted = code.executable(offset, end - begin)
            if wanted and len(wanted) <= LARGEST and self._peek(begin, len(wanted)) == wanted:
                return number
        return None

    def _peek(self, begin: int, size: int) -> bytes:
        try:
            with open(f"/proc/{self.pid}/mem", "rb", buffering=0) as memory:
                return os.pread(memory.fileno(), size, begin)
        except OSError:
            return b""

    def function(self, address: int) -> tuple[int, str] | None:
        """Returns the library and the name of the own function at an address. The name is empty if the library has none for that address."""
        mapping = self.at(address)
        if mapping is None or mapping.library is None:
            return None
        return mapping.library, self.codes[mapping.library].function(address - mapping.begin + mapping.offset)

    def entries(self, library: int, chosen: Callable[[str], bool]) -> list[int]:
        """Returns the start addresses of those functions of an own library whose names `chosen` accepts."""
        code = self.codes[library]
        return [
            mapping.begin + offset - mapping.offset
            for name, offset in code.entries()
            if chosen(name)
            for mapping in self.mappings
            if mapping.library == library and mapping.offset <= offset < mapping.offset + mapping.end - mapping.begin
        ]
