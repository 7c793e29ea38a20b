"""The judge's kernels for large tensors, run by the emulator and compared with PyTorch's operators."""

from __future__ import annotations

import math
import shutil
import subprocess

import pytest
import torch

from tests.emulator.translate import flags, translate
from verifier.build.raw import CPP_FLAGS
from verifier.correctness import bounds as correctness
from verifier.correctness.fingerprint import fingerprint
from verifier.passes import native

SIZES = (8, 2048, 5003, 40_001)
BLOCKS = 8  # so that each kernel needs several rounds for the largest size


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("passes")
    unit = folder / "passes.cpp"
    unit.write_text(translate(native.SOURCE.read_text()))
    subprocess.run(["g++", *CPP_FLAGS, *flags(), str(unit), "-o", str(folder / "passes.so")], check=True)
    return folder / "passes.so"


@pytest.fixture
def with_kernels(library, monkeypatch):
    """Calls a function first with operators and then with kernels, which must actually be used."""

    def both(function, *arguments):
        monkeypatch.setattr(native, "_passes", None)
        before = function(*arguments)
        asked = []
        passes = native.Passes(library, kind="cpu", least=1)
        takes = passes.takes
        monkeypatch.setattr(passes, "takes", lambda *tensors: asked.append(takes(*tensors)) or asked[-1])
        monkeypatch.setattr(native, "_passes", passes)
        monkeypatch.setattr(native, "BLOCKS", BLOCKS)
        after = function(*arguments)
        assert any(asked)
        return before, after

    return both


def drawn(count: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("against", ["own", "fp64"])
def test_distances(with_kernels, count, dtype, against):
    value = drawn(count, dtype)
    expected = value.double() + 1e-3 * drawn(count, torch.float64, 1)
    expected = expected if against == "fp64" else expected.to(dtype)
    before, after = with_kernels(correctness.distance, value, expected)
    assert after == pytest.approx(before, rel=1e-5)
    assert with_kernels(correctness.judge, value, expected, before * 0.9)[1].ok is False
    before, after = with_kernels(correctness.judge, value, expected, before * 1.1)
    assert before.ok and after.ok and after.error == pytest.approx(before.error, rel=1e-5)


@pytest.mark.parametrize("of", ["value", "expected", "both", "kinds"])
@pytest.mark.parametrize("what", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_not_finite(with_kernels, of, what, dtype):
    value, expected = drawn(5003, torch.float32), drawn(5003, dtype)
    for tensor in {"value": [value], "expected": [expected]}.get(of, [value, expected]):
        tensor[4999] = what
    if of == "kinds":
        value[4999] = 1 / what if math.isnan(what) else -what
        value[4999] = math.inf if math.isnan(what) else value[4999]
    before, after = with_kernels(correctness.distance, value, expected)
    assert after == pytest.approx(before, rel=1e-5)
    for limit in (1e-6, 1e6):
        before, after = with_kernels(correctness.judge, value, expected, limit)
        assert (before.ok, before.detail) == (after.ok, after.detail)
    assert len(set(with_kernels(correctness.all_finite, value))) == 1


@pytest.mark.parametrize("expected", [0.0, 1e-38, 3e38])
def test_the_ends_of_the_range(with_kernels, expected):
    value, against = torch.full((4096,), expected), torch.full((4096,), expected)
    value[7] = -expected
    before, after = with_kernels(correctness.distance, value, against)
    assert after == pytest.approx(before, rel=1e-5)


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bfloat16])
def test_equal_values(with_kernels, count, dtype):
    left = drawn(count, torch.float64).mul(100).to(dtype)
    for at in (None, 0, count // 2, count - 1):
        right = left.clone()
        if at is not None:
            right[at] += 1
        before, after = with_kernels(correctness.same_values, left, right) if left.nbytes % 8 == 0 else [correctness.same_values(left, right)] * 2
        assert before is after is (at is None)
    zero, other = torch.zeros(4096), torch.zeros(4096)
    zero[9], zero[10], other[9], other[10] = -0.0, math.nan, 0.0, -math.nan
    assert with_kernels(correctness.same_values, zero, other) == (True, True)


@pytest.mark.parametrize("count", SIZES)
def test_fingerprints(with_kernels, count):
    tensor = drawn(count, torch.float32)
    before, after = with_kernels(fingerprint, tensor)
    assert before == after
    tensor[count // 3] += 1
    changed = with_kernels(fingerprint, tensor)
    assert changed[0] == changed[1] != before
    exchanged = tensor.clone()
    exchanged[0], exchanged[-1] = tensor[-1], tensor[0]
    assert fingerprint(exchanged) != changed[0]


def test_root_mean_squares(with_kernels):
    before, after = with_kernels(correctness.root_mean_square, drawn(300_001, torch.float32))
    assert after == pytest.approx(before, rel=1e-9)


def test_what_no_kernel_takes(library):
    passes = native.Passes(library, kind="cpu", least=1)
    whole = torch.zeros(64, 64)
    assert not passes.takes(whole.T[1:]) and not passes.takes(whole.flatten()[1:]) and not passes.takes(whole, whole[:1])
    assert not native.Passes(library, kind="cpu").takes(whole) and not native.Passes(library).takes(whole)
    assert passes.squares(whole.int()) is None and passes.distance(whole, whole.half()) is None and passes.fingerprint(whole, (1, 2)) is None


def test_a_compiler_that_fails_is_no_error(tmp_path):
    assert native.build(tmp_path, str(tmp_path / "nvcc"), "sm_90") is None
    assert native.build(tmp_path, "false", "sm_90") is None


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_the_kernels_compile_once(tmp_path):
    nvcc = shutil.which("nvcc")
    library = native.build(tmp_path, nvcc, "sm_90")
    assert library is not None and native.build(tmp_path, "false", "sm_90") is None
    made = library.stat().st_mtime_ns
    assert native.build(tmp_path, nvcc, "sm_90") == library and library.stat().st_mtime_ns == made
