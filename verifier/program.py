"""Contract 2: a program is one Python source that defines `ModelNew` and runs unmodified in KernelBench's harness."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from verifier.source import Problem, SourceError, parse, sha256, top_level


@dataclass(frozen=True)
class Program:
    """A source that has been parsed (but never run) and defines `ModelNew`."""

    source: str
    sha: str

    @classmethod
    def read(cls, source: str) -> Program:
        """Parses `source`. Raises `SourceError` if it is not Python or has no class `ModelNew`."""
        tree = parse(source)
        if not isinstance(top_level(tree).get("ModelNew"), ast.ClassDef):
            raise SourceError(
                [
                    Problem(
                        message="there is no class `ModelNew`",
                        hint="define `class ModelNew(nn.Module)` with the constructor and forward of the task's `Model`",
                    )
                ]
            )
        return cls(source=source, sha=sha256(source))
