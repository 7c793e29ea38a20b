"""Describes an exception of untrusted source code, with the place where it was raised.

This module does not import torch: a party starts its device while it imports torch, and the compiler of raw kernels never imports it.
"""

# sandboxed: handles exceptions that tasks and programs raise

from __future__ import annotations

import os
import traceback
from typing import Any

MAX_MESSAGE = 6000  # maximum number of characters of an exception that are reported


def describe(error: BaseException) -> dict[str, Any]:
    """Describes an exception as data, with the innermost line of the task's or program's source."""
    line = None
    function = ""
    kept = []
    for entry in traceback.extract_tb(error.__traceback__):
        module = os.path.basename(entry.filename)
        if module in ("task.py", "program.py"):
            line, function = entry.lineno, entry.name
        if f"{os.sep}verifier{os.sep}" not in entry.filename:
            kept.append(f"{module}:{entry.lineno} in {entry.name}: {(entry.line or '').strip()}")
    if isinstance(error, SyntaxError) and os.path.basename(error.filename or "") in ("task.py", "program.py"):
        line = error.lineno
    try:
        message = str(error)
    except Exception:
        message = "(its message cannot be printed)"
    return {
        "class": type(error).__name__,
        "message": message[:MAX_MESSAGE],
        "line": line,
        "function": function,
        "traceback": "\n".join(kept[-12:])[:MAX_MESSAGE],
    }
