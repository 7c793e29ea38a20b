"""Shortens long programs for models: kernels that a change is unlikely to affect are replaced by markers, which are expanded again in the reply.

A model that reads a finished program of two hundred kilobytes pays for every kernel, although a few of them take most of the device time. A one-line
marker replaces what is left out; its purpose and its call remain visible (the comment above it, the call in `forward`). A reply that keeps the marker
keeps the kernels. To remove the kernels, a reply removes that one line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

ROOM = 36_000  # maximum number of characters shown; shorter programs are shown whole
WORTH = 400  # minimum number of characters in a body; leaving out less would save nothing
HEAVY = 0.4  # the slowest kernels that make up this share of the time are shown, unless a program is longer than `PATIENT` times the room
PATIENT = 2

_KERNEL = re.compile(
    r"^(?:template\b[^\n]*\n)?(?:extern \"C\" )?(?:static )?__global__\s+(?:void\s+)?"
    r"(?:__launch_bounds__\([^)]*\)\s*)?(?:void\s+)?(?P<name>\w+)\([^{};]*\)\s*\{\n",
    re.MULTILINE,
)
_HELPER = re.compile(
    r"^(?:template\s*<[^\n]*>\s*)?(?:static\s+)?(?:struct\s+(?P<struct>\w+)|__device__[^;{}()]*?(?P<function>\w+)\()[^;{}]*\{", re.MULTILINE
)
_COMMENTS = re.compile(r"(?:^//[^\n]*\n)+\Z", re.MULTILINE)
_HOST = re.compile(r"^extern \"C\" int (?P<name>\w+)\([^{};]*\)\s*\{", re.MULTILINE)
_END = re.compile(r"^\}", re.MULTILINE)
_KEPT = re.compile(r"^[ \t]*// \(kept: (?P<id>\w+), [^\n]*\)[ \t]*$\n?", re.MULTILINE)


@dataclass(frozen=True)
class Piece:
    """A part of a program's text that may be left out, with the kernels that it contains."""

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
    """A program's text as shown. `bodies`: the parts left out, keyed by the name in their markers."""

    text: str
    bodies: Mapping[str, str] = field(default_factory=dict)

    def restored(self, written: str) -> str:
        """Return a text with every marker replaced by its body. Raises `KeyError` with the name of an unknown marker."""
        return _KEPT.sub(lambda found: self.bodies[found["id"]], written)

    def note(self, edits: bool = True) -> str:
        """Explain the markers to a reader who edits the program or only reads it. Return "" if nothing was left out."""
        if not self.bodies:
            return ""
        what = (
            f"{len(self.bodies)} pieces are left out to save room: kernels that take least of the device's time, and helpers that only they use. "
            "A line `// (kept: NAME, 40 lines of KERNELS)` stands for"
        )
        if not edits:
            return f"{what} each; the Coder can name, keep, remove or rewrite them."
        return (
            f"{what} a helper, or for the kernels of the host function NAME and for that function, and is replaced by them before the program is "
            "built. Keep the line where they stay, in a whole file too; remove the line to remove them, or replace it with your own."
        )


def shortened(program: str, times: Mapping[str, float], wanted: str = "", room: int = ROOM) -> Shortened:
    """Shorten a program to about `room` characters. The kernels with the least time are left out first, and those named in `wanted` (an order) last.
    Helpers that are no longer used by the remaining text are also left out; the slowest kernels stay. `times`: device times keyed by kernel name, in
    any unit; a missing kernel counts as 0."""
    named = set(re.findall(r"\w+", wanted))
    order = sorted(_pieces(program), key=lambda piece: (piece.meant(named), _time(piece, times), -piece.size))
    heavy = _heavy(order, times)
    excess = len(program) - room
    left_out = _taken([piece for piece in order if piece not in heavy], excess)
    excess -= sum(piece.size for piece in left_out)
    if left_out and excess > 0:
        left_out += (helpers := _unused_helpers(program, left_out))
        excess -= sum(piece.size for piece in helpers)
    left_out += _taken([piece for piece in order if piece in heavy], excess - (PATIENT - 1) * room)
    return Shortened(_without(program, left_out), {piece.name: program[piece.begin : piece.end] for piece in left_out})


def kernel_text(program: str, name: str, most: int = 2500) -> str:
    """Return the text of a kernel, or "" if the program has none of this name, has several, or if it is longer than `most` characters."""
    found = [kernel for kernel in _KERNEL.finditer(program) if kernel["name"] == name]
    close = _END.search(program, found[0].end()) if len(found) == 1 else None
    text = program[found[0].start() : close.end()] if close is not None else ""
    return text if len(text) <= most else ""


def _time(piece: Piece, times: Mapping[str, float]) -> float:
    return sum(times.get(name, 0.0) for name in piece.kernels)


def _heavy(pieces: Sequence[Piece], times: Mapping[str, float]) -> list[Piece]:
    """Return the slowest pieces that together take the share `HEAVY` of the time."""
    found: list[Piece] = []
    left = HEAVY * sum(_time(piece, times) for piece in pieces)
    for piece in sorted(pieces, key=lambda piece: -_time(piece, times)):
        if left <= 0:
            break
        found.append(piece)
        left -= _time(piece, times)
    return found


def _taken(pieces: Sequence[Piece], excess: int) -> list[Piece]:
    """Return just enough of the leading pieces to remove the excess."""
    found: list[Piece] = []
    for piece in pieces:
        if excess <= 0:
            break
        if piece.size >= WORTH:
            found.append(piece)
            excess -= piece.size
    return found


def _without(program: str, pieces: Sequence[Piece]) -> str:
    text = program
    for piece in sorted(pieces, key=lambda piece: -piece.begin):
        text = f"{text[: piece.begin]}{piece.marker(program)}\n{text[piece.end :]}"
    return text


def _unused_helpers(program: str, left_out: Sequence[Piece]) -> list[Piece]:
    """Return the structs and device functions that the remaining text no longer uses, including helpers of helpers."""
    helpers: list[Piece] = []
    for found in _HELPER.finditer(program):
        close = _closing(program, found.end() - 1)
        if close is not None and program[close - 1] == "\n":  # a multi-line body
            name, line_end = found["struct"] or found["function"], program.find("\n", close) + 1
            helpers.append(Piece(name, found.start(), line_end or len(program), (name,)))
    helpers = [helper for helper in helpers if all(helper.end <= piece.begin or piece.end <= helper.begin for piece in left_out)]
    names = [helper.name for helper in helpers] + [piece.name for piece in left_out]
    helpers = [helper for helper in helpers if names.count(helper.name) == 1 and helper.size >= WORTH]
    gone: list[Piece] = []
    while True:
        shown = _without(program, [*left_out, *gone])
        more = [h for h in helpers if h not in gone and len(re.findall(rf"\b{h.name}\b", _without_markers(shown))) == _own_mentions(program, h)]
        if not more:
            return gone
        gone += more


def _closing(program: str, opening: int) -> int | None:
    """Return the position of the brace that matches the one at `opening`, or None."""
    depth = 0
    for found in re.compile(r"[{}]").finditer(program, opening):
        depth += 1 if found[0] == "{" else -1
        if depth == 0:
            return found.start()
    return None


def _own_mentions(program: str, helper: Piece) -> int:
    return len(re.findall(rf"\b{helper.name}\b", program[helper.begin : helper.end]))


def _without_markers(text: str) -> str:
    return _KEPT.sub("", text)


def _pieces(program: str) -> list[Piece]:
    """Return the pieces that may be left out: a host function together with its kernels, or the body of a kernel without a host function. Text is
    recognised only if its closing brace is at the beginning of a line."""
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
            pieces.append(Piece(host["name"], _below_title(program, mine[0].start()), close.end() + 1, tuple(kernel["name"] for kernel in mine)))
            hosted |= {kernel.start() for kernel in mine}
    pieces += [Piece(kernel["name"], kernel.end(), end, (kernel["name"],)) for kernel, end in kernels if kernel.start() not in hosted]
    names = [piece.name for piece in pieces]
    return [piece for piece in pieces if names.count(piece.name) == 1]


def _below_title(program: str, begin: int) -> int:
    """Return the position after the first line of the comment above a kernel. That line says what the kernel computes and remains visible."""
    comment = _COMMENTS.search(program, max(begin - 2000, 0), begin)
    return comment.start() + len(comment[0].split("\n", 1)[0]) + 1 if comment is not None else begin
