"""Long programs as models see them: kernels that a change hardly touches are left out, named, and put back into the reply.

A model that reads a finished program of two hundred kilobytes pays for every kernel, while most of the device's time is in a few. One line stands
for what is left out; what it computes and how it is called stays in sight (the comment above it, the call in `forward`). A reply that keeps the line
keeps the kernels; one that removes them removes one line instead of copying hundreds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

ROOM = 45_000  # characters of a program that are shown; shorter ones are shown whole
WORTH = 400  # characters of a body; leaving out less would save nothing

_KERNEL = re.compile(
    r"^(?:template\b[^\n]*\n)?(?:extern \"C\" )?(?:static )?__global__\s+(?:void\s+)?"
    r"(?:__launch_bounds__\([^)]*\)\s*)?(?:void\s+)?(?P<name>\w+)\([^{};]*\)\s*\{\n",
    re.MULTILINE,
)
_HOST = re.compile(r"^extern \"C\" int (?P<name>\w+)\([^{};]*\)\s*\{", re.MULTILINE)
_END = re.compile(r"^\}", re.MULTILINE)
_KEPT = re.compile(r"^[ \t]*// \(kept: (?P<id>\w+), [^\n]*\)[ \t]*$\n?", re.MULTILINE)


@dataclass(frozen=True)
class Piece:
    """Text of a program that may be left out, with the kernels in it."""

    name: str
    begin: int
    end: int
    kernels: tuple[str, ...]

    @property
    def size(self) -> int:
        return self.end - self.begin

    def meant(self, words: set[str]) -> bool:
        return not words.isdisjoint({self.name, *self.kernels})

    def marker(self, program: str) -> str:
        return f"// (kept: {self.name}, {program.count(chr(10), self.begin, self.end)} lines of {', '.join(self.kernels)})"


@dataclass(frozen=True)
class Shortened:
    """A program's text as shown. `bodies`: what was left out, by the name in its marker."""

    text: str
    bodies: Mapping[str, str] = field(default_factory=dict)

    def restored(self, written: str) -> str:
        """Return a text with every marker replaced by the body that it stands for. Raises `KeyError` with the name of an unknown one."""
        return _KEPT.sub(lambda found: self.bodies[found["id"]], written)

    def note(self) -> str:
        """Describe the markers to the one who edits; empty if nothing was left out."""
        if not self.bodies:
            return ""
        return (
            f"{len(self.bodies)} kernels are left out to save room, those that take least of the device's time. A line "
            "`// (kept: NAME, 40 lines of KERNELS)` stands for the kernels of the host function NAME and for that function, and is replaced by them "
            "before the program is built. Keep the line where they stay, in a whole file too; remove the line to remove them, or write your own "
            "in its place."
        )


def shortened(program: str, times: Mapping[str, float], wanted: str = "", room: int = ROOM) -> Shortened:
    """Return a program within about `room` characters: the kernels with the least time are left out first. Those whose names stand in `wanted` (an
    order) come last. `times`: device time by kernel name, in any unit; a kernel that is not there counts as 0."""
    named = set(re.findall(r"\w+", wanted))
    excess = len(program) - room
    left_out: list[Piece] = []
    for piece in sorted(_pieces(program), key=lambda piece: (piece.meant(named), sum(times.get(name, 0.0) for name in piece.kernels), -piece.size)):
        if excess <= 0:
            break
        if piece.size >= WORTH:
            left_out.append(piece)
            excess -= piece.size
    text = program
    for piece in sorted(left_out, key=lambda piece: -piece.begin):
        text = f"{text[: piece.begin]}{piece.marker(program)}\n{text[piece.end :]}"
    return Shortened(text, {piece.name: program[piece.begin : piece.end] for piece in left_out})


def _pieces(program: str) -> list[Piece]:
    """Return what may be left out: the kernels of a host function with the function itself, or the body of a kernel that has none. Only text whose
    closing brace stands at the beginning of a line is recognised."""
    kernels = [(found, close.start()) for found in _KERNEL.finditer(program) if (close := _END.search(program, found.end())) is not None]
    pieces: list[Piece] = []
    hosted: set[int] = set()
    last = 0
    for host in _HOST.finditer(program):
        close = _END.search(program, host.end())
        if close is None:
            break
        mine = [kernel for kernel, end in kernels if last <= kernel.start() and end < host.start()]
        last = close.end()
        if mine:
            pieces.append(Piece(host["name"], mine[0].start(), close.end() + 1, tuple(kernel["name"] for kernel in mine)))
            hosted |= {kernel.start() for kernel in mine}
    pieces += [Piece(kernel["name"], kernel.end(), end, (kernel["name"],)) for kernel, end in kernels if kernel.start() not in hosted]
    names = [piece.name for piece in pieces]
    return [piece for piece in pieces if names.count(piece.name) == 1]
