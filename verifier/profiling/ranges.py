"""Distinguishes ranges of modules and operators from the program's own ranges by the names that profilers and frameworks give them.

`torch.autograd.profiler.emit_nvtx` (also `nsys profile --pytorch=autograd-nvtx`) names a range `aten::conv2d, seq = 3, op_id = 12`, Kineto's Python
tracer uses `nn.Module: Conv2d_0`, and the recorder in `calls.py` uses `module: features.0 (Conv2d)`.
"""

from __future__ import annotations

import re

MODULE = "module: "  # prefix that this recorder adds to a module's path
_MODULES = (MODULE, "nn.Module: ")
_OPERATOR = re.compile(r"[A-Za-z_]\w*::[A-Za-z_][\w.:]*(?=$|,|\()")
_BACKWARD = re.compile(r"\w+Backward\d*(?=$|,)")
_ARGUMENTS = re.compile(r",\s*(?:seq|op_id|input_op_ids|sizes|stashed seq|trid)\b.*", re.DOTALL)
ROWS = {"module": "Modules", "operator": "Operators"}


def range_kind(text: str) -> tuple[str, str]:
    """Returns the kind of a range ("module", "operator" or "nvtx") and its name without the profiler's additions."""
    for prefix in _MODULES:
        if text.startswith(prefix):
            return "module", text[len(prefix) :] or "(no name)"
    bare = _ARGUMENTS.sub("", text)
    if _OPERATOR.match(text) or (_BACKWARD.match(text) and bare != text):
        return "operator", bare
    return "nvtx", text
