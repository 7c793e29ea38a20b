"""A case of the set: one file with a task, a good program, and a replacement for one part that makes it faulty.

A file consists of header lines (`# key: value`), the task, a line `# [program]`, and the program. Within the program, lines `// [good]`,
`// [faulty]`, `// [mended METHOD]` and `// [end]` (or with `#`) delimit alternative texts, and a variant keeps one of them. No variant contains the
marker lines, so that no diagnosis can read them. `[mended METHOD]` is the faulty program after applying a method other than the one that undoes the
fault.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.planted.prelude import prelude

FOLDER = Path(__file__).resolve().parent / "cases"
_MARK = re.compile(r"^\s*(?://|#) \[(?P<what>good|faulty|end|mended (?P<method>[a-z0-9-]+))\]\s*$")
_KEY = re.compile(r"^# (?P<key>[a-z]+): (?P<value>.+)$")


@dataclass(frozen=True)
class Case:
    name: str
    facts: dict[str, str]
    task: str
    body: str

    @classmethod
    def read(cls, path: Path) -> Case:
        """Reads a case. Raises `ValueError` if the file lacks a part."""
        head, mark, body = path.read_text().partition("\n# [program]\n")
        facts: dict[str, str] = {}
        for line in head.splitlines():
            found = _KEY.match(line)
            if found is None:
                break
            facts[found["key"]] = found["value"].strip()
        missing = {"fault", "class", "diagnosis", "method", "says"} - set(facts)
        if not mark or missing:
            raise ValueError(f"{path.name}: lacks {', '.join(sorted(missing)) or 'the line # [program]'}")
        task = head.split("\n", len(facts))[-1].lstrip("\n") + "\n"
        return cls(path.stem, facts, task, body)

    @property
    def fault(self) -> str:
        return self.facts["fault"]

    @property
    def precision(self) -> str:
        return self.facts.get("precision", "fp32-strict")

    @property
    def classes(self) -> tuple[str, ...]:
        return _listed(self.facts["class"])

    @property
    def diagnoses(self) -> tuple[str, ...]:
        """Returns the correct names of the fault, best first."""
        return _listed(self.facts["diagnosis"])

    @property
    def methods(self) -> tuple[str, ...]:
        """Returns the methods that undo the fault and lead to the good program."""
        return _listed(self.facts["method"])

    @property
    def mended(self) -> tuple[str, ...]:
        """Returns the other methods for which the file contains the resulting program."""
        found = (_MARK.match(line) for line in self.body.splitlines())
        return tuple(dict.fromkeys(mark["method"] for mark in found if mark and mark["method"]))

    def program(self, variant: str = "good") -> str:
        """Returns a variant: `good`, `faulty`, or `mended METHOD`."""
        kept: list[str] = []
        region: list[tuple[str, list[str]]] | None = None
        for line in self.body.splitlines():
            mark = _MARK.match(line)
            if mark is None:
                (kept if region is None else region[-1][1]).append(line)
            elif mark["what"] == "end":
                if region is None:
                    raise ValueError(f"{self.name}: an end without a beginning")
                texts = dict(region)
                if not {"good", "faulty"} <= set(texts):
                    raise ValueError(f"{self.name}: a region lacks its good or faulty text")
                kept += texts.get(variant, texts["good" if variant == "good" else "faulty"])
                region = None
            else:
                region = [*(region or []), (mark["what"], [])]
        if region is not None:
            raise ValueError(f"{self.name}: a region without an end")
        return prelude() + "\n".join(kept).strip("\n") + "\n"

    def after(self, method: str) -> str | None:
        """Returns the program to which a method leads, or None if the set does not contain it."""
        if method in self.methods:
            return self.program("good")
        return self.program(f"mended {method}") if method in self.mended else None


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split("|"))


def cases(folder: Path = FOLDER) -> list[Case]:
    return [Case.read(path) for path in sorted(folder.glob("*.py"))]
