"""Stores plays on disk, one file per landscape and workflow, so that an interrupted race resumes where it stopped."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from agents.arena.landscape import Table
from agents.arena.model import Quality
from agents.arena.race import Play, race
from agents.settings import Budget


class Kept:
    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def path(self, landscape: str, workflow: str) -> Path:
        return self.folder / f"{workflow}-{landscape}.json.gz"

    def batches(
        self, table: Table, workflows: Sequence[str], seeds: Sequence[int], quality: Quality, budget: Budget, workers: int
    ) -> Iterator[list[Play]]:
        """Yields all plays, starting with those on disk. New plays are written once all seeds of a landscape and workflow are complete."""
        missing: list[tuple[str, str]] = []
        for landscape in table.landscapes:
            for workflow in workflows:
                known = self.read(landscape.name, workflow)
                if known is not None:
                    yield known
                else:
                    missing.append((landscape.name, workflow))
        collected: dict[tuple[str, str], list[Play]] = {}
        for batch in race(table, missing, seeds, quality, budget, workers):
            pair = batch[0].landscape, batch[0].workflow
            collected.setdefault(pair, []).extend(batch)
            if len(collected[pair]) == len(seeds):
                self.write(*pair, collected.pop(pair))
            yield batch

    def read(self, landscape: str, workflow: str) -> list[Play] | None:
        try:
            return [Play(**entry) for entry in json.loads(gzip.decompress(self.path(landscape, workflow).read_bytes()))]
        except FileNotFoundError:
            return None

    def write(self, landscape: str, workflow: str, plays: Sequence[Play]) -> None:
        path = self.path(landscape, workflow)
        scratch = path.with_name(f".{path.name}.new")
        scratch.write_bytes(gzip.compress(json.dumps([asdict(play) for play in plays], separators=(",", ":")).encode(), compresslevel=4))
        scratch.replace(path)
