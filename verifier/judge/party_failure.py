"""Explains why a party did not answer, based on its exit status and the end of its output."""

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
# PyTorch's own message, or that of `verifier.devices.cuda_party`: a memory fault, the driver's time limit, an assertion, or another kernel fault.
_ENDS_CONTEXT = re.compile(r"CUDA error(:| (700|702|71\d):)")
_DUMPED = re.compile(r'File "[^"]*/(task|program)\.py", line (\d+) in (\S+)')


_LACKS_GPU = re.compile(
    r"Torch not compiled with CUDA|ATen_cuda library|Found no NVIDIA driver|No CUDA GPUs are available|CUDA_HOME environment variable is not set|"
    r"Cannot initialize CUDA|no CUDA-capable device|libcuda\.so|0 active drivers"
)


def without_gpu(text: str) -> str:
    """Rewords the error of a source that requests a GPU on a host without one. Returns any other error unchanged."""
    return "it needs a GPU: choose cuda:0" if _LACKS_GPU.search(text) else text


@dataclass
class PartyFailure(Exception):
    """The reason why a party did not answer: its source raised an exception, or the party died, hung or broke the protocol. `message` is
    human-readable."""

    kind: Literal["raised", "crashed", "timed_out", "memory", "flood", "protocol", "wanted"]  # "wanted": it requested a build and exited
    message: str
    line: int | None = None
    detail: str = ""  # traceback or last output
    error_class: str = ""
    request: str = ""  # the request that was not answered
    whose: str = ""  # "program", "reference", "rival" or the name of a baseline
    wish: dict[str, Any] | None = None  # for "wanted": the build request, unparsed


def ends_context(failure: PartyFailure) -> bool:
    """Returns whether the source raised an error, such as a device-side assertion on an index, after which CUDA no longer responds in that
    process."""
    return failure.kind == "raised" and (failure.error_class == "AcceleratorError" or _ENDS_CONTEXT.search(failure.message) is not None)


def death(status: int | None) -> str:
    """Explains an exit status (128 + n or negative for signal n; null while the party is alive)."""
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
    """Returns the innermost line of `source` ("task" or "program") at which a signal killed a party, as reported by its faulthandler."""
    at = printed.rfind("Fatal Python error")
    found = re.findall(rf'File "[^"]*/{source}\.py", line (\d+)', printed[at:]) if at >= 0 else []
    return int(found[0]) if found else None


def hang_line(text: str, source: str) -> int | None:
    """Returns the innermost line of `source` ("task" or "program") at which a party hung, based on the stack that its own watchdog wrote."""
    at = text.rfind("Timeout (")
    if at < 0:
        return None
    for module, line, _ in _DUMPED.findall(text[at:]):
        if module == source:
            return int(line)
    return None
