"""Imports the modules that a task's capture needs before the party has a role, and therefore without a device.

The exporter's modules take most of the time of a small task's capture, and a model library takes seconds more.
"""

# sandboxed: imports the libraries that a task imports

from __future__ import annotations

import ast
import random
from collections.abc import Iterator

# Imports within functions: the party loads torch only when requested.


def foresee(source: str) -> None:
    """Imports the exporter and the libraries with which the task's source begins. Executes no other part of the source. Raises whatever an import
    raises."""
    from verifier.startup.importing import swift_imports

    with swift_imports():
        import torch.export._trace  # the exporter imports it at its first use

        import verifier.parties.capturing.capture
        import verifier.parties.reference  # noqa: F401
        from verifier.parties.loading import IMPORT_SEED
    torch.manual_seed(IMPORT_SEED)  # a library draws the same numbers as when the whole source is loaded
    random.seed(IMPORT_SEED)
    for statement in leading_imports(source):
        exec(compile(ast.Module([statement], []), "libraries", "exec"), {"__name__": "libraries"})


def leading_imports(source: str) -> Iterator[ast.stmt]:
    """Yields the import statements before the first statement of another kind, apart from strings. Later imports may depend on that statement: a
    source may set an environment variable before it imports a library."""
    for statement in ast.parse(source.removeprefix("\ufeff")).body:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            yield statement
        elif not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
            return
