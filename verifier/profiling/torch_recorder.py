"""Uses torch's recorder (Kineto, on a GPU with CUPTI) without the class `torch.profiler.profile` around it.

That class imports `torch._inductor.config` before it starts, to ask for one setting about CUDA graphs: 800 modules, 3 to 6 s on an H200's
host, where CUPTI and Kineto themselves start in less than one. The recording is the same.
"""

from __future__ import annotations

from torch.autograd.profiler import profile


def recording(cuda: bool) -> profile:
    """Records operators, ranges and runtime calls of this thread and, with `cuda`, all device work. It is a context manager; afterwards the recording
    has `export_chrome_trace` and `key_averages`."""
    return profile(use_kineto=True, use_device="cuda" if cuda else None)
