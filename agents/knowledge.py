"""Documents that people add. A diagnosis may use them and must cite them. A team's documents are stored in Postgres; for the command line, they are
read from a folder.

`FolderLibrary` implements `agents.ports.Library` for `.md` and `.txt` files and ranks passages with BM25. Both libraries use this module to split
documents, so a citation means the same everywhere. A passage is a heading with its paragraphs, has at most PASSAGE_CHARACTERS, and never spans a
heading.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agents.ports import Passage

if TYPE_CHECKING:
    from agents.span import Span

PASSAGE_CHARACTERS = 1600
FOUND = 3
RELEVANT = 0.4  # required fraction of the best passage's score; below it, a passage merely shares a common word with the query
SUFFIXES = (".md", ".markdown", ".txt")
MOST_BYTES = 1024 * 1024  # size limit per file
K1, B = 1.2, 0.75  # the usual BM25 constants (Robertson and Zaragoza, 2009)
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]+|\d+")
STOP = frozenset(
    ["a", "an", "and", "are", "as", "at", "be", "by", "for", "from", "has", "in", "into", "is", "it", "its", "not", "of", "on", "or", "so", "such"]
    + ["than", "that", "the", "their", "then", "there", "these", "this", "to", "was", "were", "which", "with"]
)


async def look_up(span: Span, query: str, count: int = FOUND) -> list[Passage]:
    """Looks up passages for a query as an effect of `span`, so that a resumed run cites the same passages as before. Returns None if there is no
    library."""
    library = span.run.library
    if library is None or not query.strip():
        return []

    async def search() -> list[dict[str, Any]]:
        return [asdict(passage) for passage in await library.search(query, count)]

    return [Passage(**row) for row in await span.effect("library", search)]


def cited_as(title: str, heading: str) -> str:
    """Returns the name of a passage in a citation: the document, and the heading above the passage."""
    return f"{title}: {heading}" if heading and heading != title else title


@dataclass(frozen=True)
class Piece:
    heading: str
    text: str


def pieces(text: str, *, headings: bool = True) -> Iterator[Piece]:
    """Yields a document's passages in order. The text is split at Markdown headings, then into paragraphs, and long paragraphs are split into lines.
    Inside fenced code and in plain text (`headings=False`), lines that start with `#` are not headings."""
    for heading, block in _sections(text) if headings else [("", text.replace("\r\n", "\n").replace("\r", "\n"))]:
        held = ""
        for paragraph in _paragraphs(block):
            if held and len(held) + len(paragraph) + 2 > PASSAGE_CHARACTERS:
                yield Piece(heading, held)
                held = ""
            held = f"{held}\n\n{paragraph}" if held else paragraph
        if held:
            yield Piece(heading, held)


def _sections(text: str) -> Iterator[tuple[str, str]]:
    """Yields Markdown blocks, each with the headings above it ("Tiles: CUDA"). A single first-level heading is the document's title, and only the
    text directly below it gets this heading."""
    lines = list(_lines(text))
    top = 2 if sum(level == 1 for level, _ in lines) == 1 else 1
    above: dict[int, str] = {}  # headings, keyed by level
    block: list[str] = []
    place = ""
    for level, line in lines:
        if not level:
            block.append(line)
            continue
        yield place, "\n".join(block)
        block = []
        above = {known: heading for known, heading in above.items() if known < level} | {level: line}
        place = ": ".join(heading for known, heading in sorted(above.items()) if known >= top) or line
    yield place, "\n".join(block)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yields ordinary lines with level 0, and headings with their level and without the `#` marks."""
    fenced = False
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        found = None if fenced else re.match(r"(#{1,6})\s+(.*?)\s*#*\s*$", line)
        yield (len(found[1]), found[2]) if found else (0, line)


def _paragraphs(block: str) -> Iterator[str]:
    """Yields paragraphs of at most PASSAGE_CHARACTERS. Longer paragraphs are split at line ends, and a line that is still too long is split
    anywhere."""
    for paragraph in re.split(r"\n\s*\n", block):
        left = paragraph.strip("\n")
        while len(left) > PASSAGE_CHARACTERS:
            cut = max(left.rfind("\n", 0, PASSAGE_CHARACTERS), left.rfind(" ", PASSAGE_CHARACTERS // 2, PASSAGE_CHARACTERS))
            cut = cut if cut > 0 else PASSAGE_CHARACTERS
            yield left[:cut].rstrip()
            left = left[cut:].lstrip("\n ")
        if left.strip():
            yield left


def words(text: str) -> list[str]:
    """Returns the search words of a text in lower case, without the most common ones. Compounds such as `cp_async` are kept in addition to their
    parts."""
    found: list[str] = []
    for word in WORD.findall(text):
        small = word.lower()
        found.append(small)
        if "_" in small.strip("_"):
            found += [part for part in small.split("_") if part]
    return [_stem(word) for word in found if word not in STOP]


def _stem(word: str) -> str:
    """Strips plural endings only, which is enough for a folder and never conflates different words."""
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")) else word


class FolderLibrary:
    """The documents of a folder. They are read on first use. Files that are too large or not text are left out and listed in `problems`."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.problems: list[str] = []
        self._index: _Index | None = None

    async def search(self, query: str, count: int) -> list[Passage]:
        if self._index is None:
            self._index = _Index(list(self._entries()))
        return self._index.search(query, count)

    def _entries(self) -> Iterator[tuple[Passage, str]]:
        """Yields each passage with its search words. Words from the heading count twice."""
        for path in sorted(p for p in self.folder.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file()):
            name = path.relative_to(self.folder).as_posix()
            try:
                if path.stat().st_size > MOST_BYTES:
                    raise ValueError(f"it is larger than {MOST_BYTES // 1024} KiB")
                text = path.read_text(encoding="utf-8")
            except (OSError, ValueError) as error:
                self.problems.append(f"{name} is left out: {error}")
                continue
            title = title_of(text) or path.stem
            for number, piece in enumerate(pieces(text, headings=path.suffix.lower() != ".txt")):
                passage = Passage(f"{name}#{number}", cited_as(title, piece.heading), piece.text)
                yield passage, f"{title} {piece.heading} {piece.heading} {piece.text}"


def title_of(text: str) -> str:
    """Returns the first heading of a Markdown text, or "" if there is none."""
    return next((heading for heading, _ in _sections(text) if heading), "")[:140]


class _Index:
    def __init__(self, entries: Sequence[tuple[Passage, str]]):
        self.passages = [passage for passage, _ in entries]
        self.counts = [Counter(words(text)) for _, text in entries]
        self.mean = sum(map(Counter.total, self.counts)) / len(entries) if entries else 1.0
        self.holding = Counter(word for counts in self.counts for word in counts)

    def search(self, query: str, count: int) -> list[Passage]:
        wanted = list(dict.fromkeys(words(query)))
        scored = [(self._score(counts, wanted), i) for i, counts in enumerate(self.counts)]
        best = sorted((pair for pair in scored if pair[0] > 0), key=lambda pair: (-pair[0], pair[1]))[:count]
        return [self.passages[i] for value, i in best if value >= RELEVANT * best[0][0]]

    def _score(self, counts: Counter[str], wanted: Sequence[str]) -> float:
        length = K1 * (1 - B + B * counts.total() / self.mean)
        total = 0.0
        for word in wanted:
            if counts[word]:
                rarity = math.log(1 + (len(self.passages) - self.holding[word] + 0.5) / (self.holding[word] + 0.5))
                total += rarity * counts[word] * (K1 + 1) / (counts[word] + length)
        return total
