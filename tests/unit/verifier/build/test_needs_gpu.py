"""Programs whose import fails in the builder, which has no GPU."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from verifier.build.artefacts import NONE, Artefacts, Asked
from verifier.build.building import needs_gpu

GPU, CPU = SimpleNamespace(kind="cuda"), SimpleNamespace(kind="cpu")
ASKS = "import torch\nassert torch.cuda.is_available(), 'this kernel is for Hopper'\n"
OWN_WORDS = {"class": "AssertionError", "message": "this kernel is for Hopper"}


def test_a_program_that_misses_the_gpu_is_judged_in_the_runner():
    assert needs_gpu({"class": "RuntimeError", "message": "Found no NVIDIA driver on your system"}, GPU, "x = 1", NONE)
    assert needs_gpu(OWN_WORDS, GPU, ASKS, NONE)
    assert needs_gpu(OWN_WORDS, GPU, "from torch.cuda import is_available as found\nassert found()", NONE)


@pytest.mark.parametrize(
    ("failure", "device", "source", "failed"),
    [
        (OWN_WORDS, CPU, ASKS, ""),
        (OWN_WORDS, GPU, "assert False, 'torch.cuda.is_available()'", ""),
        (OWN_WORDS, GPU, ASKS, "error: expected a ;"),
        ({"class": "RuntimeError", "message": "Error building extension 'k'"}, GPU, ASKS, ""),
        ({"class": "RuntimeError", "message": "nvcc failed:\nk.cu(3): error"}, GPU, ASKS, ""),
        ({"class": "FileNotFoundError", "message": "[Errno 2] No such file or directory: 'nvcc'"}, GPU, ASKS, ""),
    ],
)
def test_any_other_failure_ends_the_build(failure, device, source, failed):
    asked = [Asked("load_inline", "k", "0", "0", 1, failure=failed)] if failed else []
    assert not needs_gpu(failure, device, source, Artefacts([], b"", 0.0, asked))
