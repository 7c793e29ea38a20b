"""Explains why a party did not answer, from its exit status and the end of its output."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from typing import Any, Literal

_SIGNALS = {
    "SIGABRT": "abort",
    "SIGBUS": "bus error",
    "SIGFPE": "arithmetic fault",
    "SIGILL": "illegal instruction",
    "SIGSEGV": "segmentation fault",
}
_DUMPED = re.compile(r'File "[^"]*/(task|program)\.py", line (\d+) in (\S+)')


_LACKS_GPU = re.compile(
    r"Torch not compiled with CUDA|ATen_cuda library|Found no NVIDIA driver|No CUDA GPUs are available|CUDA_HOME environment variable is not set|"
    r"Cannot initialize CUDA|no CUDA-capable device|libcuda\.so|0 active drivers"
)


def without_gpu(text: str) -> str:
    """Rewords an error of a source that asks for a GPU where there is none; returns any other error unchanged."""
    return "it needs a GPU: choose cuda:0" if _LACKS_GPU.search(text) else text


@dataclass
class PartyFailure(Exception):
    """Why a party did not answer: its source raised, it died, it hung, or it broke the protocol. `message` is for people."""

    kind: Literal["raised", "crashed", "timed_out", "memory", "flood", "protocol", "wanted"]  # the last kind: it requested a build, and ended
    message: str
    line: int | None = None
    detail: str = ""  # traceback, last output
    error_class: str = ""
    request: str = ""  # the request
    whose: str = ""  # "program", "reference", "rival" or the name of a baseline
    wish: dict[str, Any] | None = None  # for "wanted": its note, unparsed


def death(status: int | None) -> str:
    """Explains an exit status (128 + n or negative for signal n; null where the party is alive)."""
    if status is None:
        return "it closed its channel"
    number = -status if status < 0 else status - 128 if status > 128 else 0
    if number:
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = f"signal {number}"
        return f"it was ended by {name}" + (f" ({_SIGNALS[name]})" if name in _SIGNALS else "")
    return f"it exited with status {status} before it answered"


def fatal_line(printed: str, source: str) -> int | None:
    """Returns where a signal ended a party, as its faulthandler wrote it: the innermost line of `source` ("task" or "program")."""
    at = printed.rfind("Fatal Python error")
    found = re.findall(rf'File "[^"]*/{source}\.py", line (\d+)', printed[at:]) if at >= 0 else []
    return int(found[0]) if found else None


def hang_line(text: str, source: str) -> int | None:
    """Returns where a party was when its own watchdog wrote its stack: the innermost line of `source` ("task" or "program")."""
    at = text.rfind("Timeout (")
    if at < 0:
        return None
    for module, line, _ in _DUMPED.findall(text[at:]):
        if module == source:
            return int(line)
    return None
