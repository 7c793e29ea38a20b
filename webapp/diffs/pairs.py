"""Which line of a changed block became which: lines with words in common stand beside each other."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

Pair = tuple[int | None, int | None]

LEAST = 0.3  # share of words in common that makes two lines one that was changed
BITS = 128  # of a line's signature, in two words of 64
MAX_CELLS = 1_000_000  # lines by lines of one block

_WORD = re.compile(r"\w+|[^\w\s]")


def align(old: Sequence[str], new: Sequence[str]) -> list[Pair] | None:
    """Pairs in order with the greatest sum of likeness; a line without a partner stands alone. None where the block is too large for that."""
    n, m = len(old), len(new)
    if not n or not m:
        return [(i, None) for i in range(n)] + [(None, j) for j in range(m)]
    if n * m > MAX_CELLS:
        return None
    likeness = _likeness(old, new)
    # best[i, j]: the greatest sum of the lines from i and from j on. A row at a time: its own cells depend on each other by a running maximum.
    best = np.zeros((n + 1, m + 1), dtype=np.float32)
    taken = np.where(likeness >= LEAST, likeness, -1.0).astype(np.float32)
    for i in range(n - 1, -1, -1):
        row = np.maximum(best[i + 1, :m], taken[i] + best[i + 1, 1:])
        best[i, :m] = np.maximum.accumulate(row[::-1])[::-1]
    return _path(best, taken)


def positional(n: int, m: int) -> list[Pair]:
    """Line by line, as they come."""
    return [(k if k < n else None, k if k < m else None) for k in range(max(n, m))]


def _path(best: np.ndarray, taken: np.ndarray) -> list[Pair]:
    n, m = taken.shape
    pairs: list[Pair] = []
    i = j = 0
    while i < n and j < m:
        if taken[i, j] >= 0 and best[i, j] == taken[i, j] + best[i + 1, j + 1]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif best[i, j] == best[i + 1, j]:
            pairs.append((i, None))
            i += 1
        else:
            pairs.append((None, j))
            j += 1
    return pairs + [(k, None) for k in range(i, n)] + [(None, k) for k in range(j, m)]


def _likeness(old: Sequence[str], new: Sequence[str]) -> np.ndarray:
    """Share of words that each line has in common with each, 0 to 1: from bits set for a line's words, so that it costs two ANDs a pair."""
    before, after = _signatures(old), _signatures(new)
    common = np.zeros((len(old), len(new)), dtype=np.uint8)
    for word in range(BITS // 64):
        common += np.bitwise_count(before[:, None, word] & after[None, :, word])
    sizes = np.bitwise_count(before).sum(1)[:, None].astype(np.float32) + np.bitwise_count(after).sum(1)[None, :]
    return np.where(sizes > 0, 2 * common / np.maximum(sizes, 1), 1.0).astype(np.float32)


def _signatures(lines: Sequence[str]) -> np.ndarray:
    found = []
    for line in lines:
        bits = 0
        for word in _WORD.findall(line[:2000]):
            bits |= _bit(word)
        found.append((bits & 0xFFFF_FFFF_FFFF_FFFF, bits >> 64))
    return np.array(found, dtype=np.uint64)


@lru_cache(maxsize=1 << 16)
def _bit(word: str) -> int:
    return 1 << zlib.crc32(word.encode("utf-8", "replace")) % BITS
