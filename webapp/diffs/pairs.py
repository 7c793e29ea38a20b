"""Pairs the lines of a changed block by aligning lines that have words in common."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

Pair = tuple[int | None, int | None]

LEAST = 0.3  # minimum fraction of common words for two lines to count as one changed line
BITS = 128  # length of a line's signature, stored in two 64-bit words
MAX_CELLS = 1_000_000  # product of the line counts of one block

_WORD = re.compile(r"\w+|[^\w\s]")


def align(old: Sequence[str], new: Sequence[str]) -> list[Pair] | None:
    """Pairs lines in order so that their total similarity is greatest. Lines without a partner remain unpaired. Returns None if the block is too
    large."""
    n, m = len(old), len(new)
    if not n or not m:
        return [(i, None) for i in range(n)] + [(None, j) for j in range(m)]
    if n * m > MAX_CELLS:
        return None
    likeness = _likeness(old, new)
    # best[i, j] is the greatest sum from lines i and j onwards. It is computed row by row. The cells of a row depend on each other through a running
    # maximum.
    best = np.zeros((n + 1, m + 1), dtype=np.float32)
    taken = np.where(likeness >= LEAST, likeness, -1.0).astype(np.float32)
    for i in range(n - 1, -1, -1):
        row = np.maximum(best[i + 1, :m], taken[i] + best[i + 1, 1:])
        best[i, :m] = np.maximum.accumulate(row[::-1])[::-1]
    return _path(best, taken)


def positional(n: int, m: int) -> list[Pair]:
    """Pairs lines in order, one by one."""
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
    """Returns the fraction of words, 0 to 1, that each pair of lines has in common, computed from bit sets of the words with two ANDs per pair."""
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
