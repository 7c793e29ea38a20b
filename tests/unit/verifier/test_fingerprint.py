"""Fingerprints use two sums over memory to detect whether it has changed."""

import pytest
import torch

from verifier.correctness import fingerprint as module
from verifier.correctness.fingerprint import fingerprint

TENSORS = {
    "float32": torch.randn(7, 33),
    "bfloat16": torch.randn(5, 3).bfloat16(),
    "bytes": torch.randint(0, 255, (13,), dtype=torch.uint8),
    "bool": torch.rand(9) > 0.5,
    "int64": torch.arange(40).view(4, 10),
    "complex64": torch.randn(6, dtype=torch.complex64),
    "turned": torch.randn(8, 9).t(),
}


@pytest.mark.parametrize("name", TENSORS)
@pytest.mark.parametrize("chunk", [4, 1 << 20])
def test_every_change_is_seen(name, chunk, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", chunk)
    tensor = TENSORS[name]
    before = fingerprint(tensor)
    assert fingerprint(tensor.clone()) == before
    for at in (0, tensor.numel() // 2, tensor.numel() - 1):
        changed = tensor.clone(memory_format=torch.preserve_format)
        flat = changed.view(-1) if changed.is_contiguous() else changed.t().view(-1)
        flat[at] = ~flat[at] if tensor.dtype == torch.bool else flat[at] + 1
        assert fingerprint(changed) != before
    if tensor.dtype != torch.bool:
        assert fingerprint(tensor.flip(0)) != before
    assert fingerprint(tensor.reshape(-1)) != before or tensor.dim() == 1


def test_zeros_of_both_signs_and_nans_are_bits():
    zeros = torch.zeros(5)
    assert fingerprint(zeros) != fingerprint(-zeros)
    assert fingerprint(torch.full((5,), float("nan"))) == fingerprint(torch.full((5,), float("nan")))
