"""Evaluates one program against one task on one device, and returns a verdict that can be trusted.

In Python: `from verifier import check; report = check(task, program, device="cuda:0")`. On the command line: `python -m verifier check`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from verifier.checking import CannotCheck, check

__all__ = ["CannotCheck", "check"]


def __getattr__(name: str) -> Any:
    """Imports each name on first use, because confined processes also import this package and need neither name."""
    if name in __all__:
        from verifier import checking  # not earlier, for the reason given above

        return getattr(checking, name)
    raise AttributeError(f"module 'verifier' has no attribute {name!r}")
