"""Uses torch's recorder (Kineto, with CUPTI on a GPU) without its wrapper class `torch.profiler.profile`.

Before it starts, that class imports `torch._inductor.config` to read one setting about CUDA graphs. This import loads 800 modules and takes 3 to 6 s
on an H200 host, whereas CUPTI and Kineto themselves start in less than one second. The recording is the same.
"""

from __future__ import annotations

from torch.autograd.profiler import profile


def recording(cuda: bool) -> profile:
    """Records operators, ranges and runtime calls of this thread and, with `cuda`, all device work. Use it as a context manager; when the context
    ends, the recording provides `export_chrome_trace` and `key_averages`."""
    return profile(use_kineto=True, use_device="cuda" if cuda else None)
