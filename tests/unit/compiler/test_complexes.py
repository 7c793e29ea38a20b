"""Complex arithmetic is arithmetic on pairs of reals, in our own kernels between the library's transforms and products."""

from __future__ import annotations

import pytest
import torch

from compiler import DeviceFigures
from tests.emulator import as_cpp
from tests.unit.compiler.loading import load

PAIRS = "torch.randn(4, 24, 32, 2)"
CASES = {
    "turned": ("a, b = torch.view_as_complex(x), torch.view_as_complex(y)\nreturn torch.view_as_real(a * b).flatten(2)", PAIRS),
    "turned by angles": (
        "a = torch.view_as_complex(x) * torch.polar(torch.ones_like(y[..., 0]), y[..., 1])\nreturn torch.view_as_real(a) + 1",
        PAIRS,
    ),
    "sums": ("a, b = torch.view_as_complex(x), torch.view_as_complex(y)\nc = (a + b) * 2 - a.conj() / 3\nreturn c.real.relu(), c.imag * 2", PAIRS),
    "lengths": ("a = torch.view_as_complex(x) * torch.view_as_complex(y)\nreturn a.abs() * 2, (a * 1e-25).abs() * 1e20", PAIRS),
    "by numbers": ("a = torch.view_as_complex(x)\nreturn torch.view_as_real(torch.exp(1j * y[..., 0]) * a * (2 - 1j))", PAIRS),
    "composed": ("return torch.view_as_real(torch.complex(x[..., 0], y[..., 1]) * torch.view_as_complex(y))", PAIRS),
    "summed": ("return (torch.view_as_complex(x) * torch.view_as_complex(y)).sum(1).abs()", PAIRS),
    "moved": (
        "a = torch.view_as_complex(x)\nb = torch.cat((a, a.conj()), 1).roll(3, 1)\nreturn torch.view_as_real(b * torch.view_as_complex(y)[:, :1])",
        PAIRS,
    ),
    "a filter": ("f = torch.fft.rfft(x[..., 0]) * torch.fft.rfft(y[..., 0]).conj()\nreturn torch.fft.irfft(f, n=32) * 2", PAIRS),
    "modes": (
        "f = torch.fft.rfft2(x[..., 0])\nout = torch.zeros_like(f)\nw = torch.view_as_complex(y[:, :6, :8])\n"
        "out[:, :6, :8] = f[:, :6, :8] * w\nout[:, -6:, :8] = f[:, -6:, :8] * w.conj()\nreturn torch.fft.irfft2(out, s=(24, 32))",
        PAIRS,
    ),
    "a product": ("a = torch.view_as_complex(x) * 2\nreturn torch.view_as_real(a @ torch.view_as_complex(y).mT) * 0.5", PAIRS),
}  # fmt: skip


@pytest.mark.parametrize("device", ["cpp", pytest.param("cuda", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", CASES)
def test_pairs_of_reals(compiled, task, name, device):
    body, pairs = CASES[name]
    found = compiled(task(body, f"{pairs}, {pairs}", arguments="x, y"), figures=DeviceFigures.h200() if device == "cuda" else None)
    assert found.plan.own, found.plan.groups
    if device == "cuda":
        found.text = as_cpp(found.text)
    found.check()


def test_what_turns_is_one_kernel(compiled, task):
    body, pairs = CASES["turned"]
    found = compiled(task(body, f"{pairs}, {pairs}", arguments="x, y"))
    assert len(found.plan.groups) == 1 and "complex" not in found.text.split("def forward")[-1]


def test_a_filter_is_one_kernel_between_transforms(compiled, task):
    body, pairs = CASES["modes"]
    found = compiled(task(body, f"{pairs}, {pairs}", arguments="x, y"))
    assert [group.kinds[0] for group in found.plan.groups if group.space != "own kernel" and "fft" in group.kinds[0]] == ["fft r2c", "fft c2r"]
    assert "slice_scatter(" not in found.text.split("def forward")[-1]


def test_a_complex_result_is_one(compiled, task):
    source = task("return torch.view_as_complex(x) * torch.view_as_complex(y).conj() + 0.5", f"{PAIRS}, {PAIRS}", arguments="x, y")
    found = compiled(source)
    got, wanted = load(found.text, "program")["ModelNew"]()(*found.inputs), found.model(*found.inputs)
    assert found.plan.own and got.dtype == wanted.dtype and torch.allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_complex_weights_are_turned_around_once(compiled, task):
    body = "return torch.view_as_real(torch.einsum('bixy,ioxy->boxy', torch.fft.rfft2(x), torch.view_as_complex(self.w))) * 2"
    found = compiled(task(body, "torch.randn(3, 4, 6, 8)", "self.w = nn.Parameter(torch.randn(4, 7, 6, 5, 2))"))
    assert "torch.view_as_complex(self.w.contiguous()).permute([2, 3, 0, 1]).contiguous()" in found.text.split("def pack")[1].split("def forward")[0]
    found.check()
