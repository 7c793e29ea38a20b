"""The judge's kernels for large tensors on a real GPU, compared with PyTorch's operators."""

import math

import pytest
import torch

from verifier.correctness import bounds as correctness
from verifier.correctness.fingerprint import fingerprint
from verifier.devices import cuda_driver
from verifier.devices.cuda import find_nvcc
from verifier.passes import native

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(cuda_driver.driver() is None, reason=f"no CUDA device: {cuda_driver.why_no_driver()}"),
    pytest.mark.skipif(not find_nvcc(), reason="needs nvcc"),
]

COUNT = (1 << 27) + 12_341  # two of the pieces that the operators use, not aligned to blocks


@pytest.fixture
def both(tmp_path_factory, monkeypatch):
    major, minor = torch.cuda.get_device_capability()
    library = native.build(tmp_path_factory.getbasetemp(), find_nvcc(), f"sm_{major}{minor}")
    assert library is not None

    def asked(function, *arguments):
        monkeypatch.setattr(native, "_passes", None)
        before = function(*arguments)
        monkeypatch.setattr(native, "_passes", native.Passes(library))
        assert native._passes.takes(*(value for value in arguments if isinstance(value, torch.Tensor)))
        return before, function(*arguments)

    return asked


def drawn(dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(COUNT, generator=torch.Generator("cuda").manual_seed(1), device="cuda").to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("precise", [False, True])
def test_distances(both, dtype, precise):
    value = drawn(dtype)
    expected = value.double() * (1 + 1e-3 * torch.rand(COUNT, device="cuda"))
    expected = expected if precise else expected.to(dtype)
    before, after = both(correctness.distance, value, expected)
    assert after == pytest.approx(before, rel=1e-4)
    value[COUNT - 2] = math.nan
    assert both(correctness.distance, value, expected) == (math.inf, math.inf)
    before, after = both(correctness.judge, value, expected, 1.0)
    assert not before.ok and before.detail == after.detail


def test_equal_values_and_fingerprints(both):
    left, right = drawn(torch.float32)[: COUNT - 1], drawn(torch.float32)[: COUNT - 1]
    assert both(correctness.same_values, left, right) == (True, True)
    first = both(fingerprint, left)
    assert first[0] == first[1]
    right[COUNT - 3] += 1
    assert both(correctness.same_values, left, right) == (False, False)
    changed = both(fingerprint, right)
    assert changed[0] == changed[1] != first[0]
