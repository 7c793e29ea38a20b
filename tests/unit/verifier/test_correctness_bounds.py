"""The error bound: plain fp32 passes, lower precision fails; decisions are distinguished from errors."""

from __future__ import annotations

import math

import pytest
import torch

from verifier.correctness.bounds import ULPS, K, bound, deviation, distance, judge, no_oracle, tolerated
from verifier.parties.oracle import Rough, Wide, default_double
from verifier.parties.widening import WideCopies

FP32 = torch.finfo(torch.float32).eps


def sequential(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    acc = torch.zeros(a.shape[0], b.shape[1])
    for k in range(a.shape[1]):
        acc += a[:, k : k + 1] * b[k : k + 1]
    return acc


def tf32(x: torch.Tensor) -> torch.Tensor:
    return ((x.contiguous().view(torch.int32) + 0x1000) & -0x2000).view(torch.float32)


def rough(function, *inputs: torch.Tensor, draws: int = 3, **options) -> list[float]:
    with torch.no_grad(), default_double():
        exact = function(*(x.double() for x in inputs))
        found = []
        for seed in range(draws):
            with Rough(seed, torch.float32, **options):
                found.append(distance(function(*(x.double() for x in inputs)), exact))
    return found


@pytest.mark.parametrize("draw", [torch.rand, torch.randn])
@pytest.mark.parametrize("length", [64, 1024])
def test_a_sequential_product_is_within_and_tf32_is_beyond(draw, length):
    torch.manual_seed(length)
    a, b = draw(64, length), draw(length, 64)
    exact = a.double() @ b.double()
    limit = bound(distance(a @ b, exact), rough(torch.matmul, a, b), torch.float32)
    assert judge(sequential(a, b), exact, limit).ok
    assert distance(tf32(a) @ tf32(b), exact) > 4 * limit
    assert distance((a.bfloat16() @ b.bfloat16()).float(), exact) > 4 * limit


def test_plain_errors_grow_with_the_length_of_a_sum():
    torch.manual_seed(0)
    short, long = (rough(lambda x: x.sum(-1), torch.rand(256, n)) for n in (16, 4096))
    assert 4 < max(long) / max(short) < 40  # grows as the square root of the length, plus one rounding of the result


def test_the_policy_tf32_allows_tf32_operands_even_where_pytorch_does_not_use_them():
    torch.manual_seed(1)
    a, b = torch.randn(64, 512), torch.randn(512, 64)
    exact = a.double() @ b.double()
    limit = bound(distance(a @ b, exact), rough(torch.matmul, a, b, tf32=True), torch.float32, "tf32")
    assert judge(tf32(a) @ tf32(b), exact, limit).ok
    assert not judge((a.bfloat16() @ b.bfloat16()).float(), exact, limit).ok


def test_operators_that_only_move_are_exact():
    x = torch.randn(32, 32)
    assert rough(lambda x: torch.relu(x.t().contiguous())[3:].amax(-1), x) == [0.0] * 3
    assert max(rough(lambda x: torch.floor(x * 1.0), x, draws=1)) in (0.0, pytest.approx(1, abs=1))


def test_errors_of_few_elements_are_trusted_less():
    assert bound(0.0, [1e-5, 1.1e-5, 0.9e-5], torch.float32) < bound(0.0, [1e-5, 1.1e-5, 1e-6], torch.float32)
    assert bound(1e-3, [], torch.float32, "tf32") == K["tf32"] * 1e-3
    assert bound(0.0, [], torch.float64) == ULPS * torch.finfo(torch.float64).eps
    assert bound(math.inf, [], torch.float32) == ULPS * FP32


def test_decisions_are_told_from_errors_and_from_noise():
    expected = torch.linspace(1, 2, 1000, dtype=torch.float64)
    value = expected.float()
    value[10] = -5
    error, share = deviation(value, expected)
    assert share == pytest.approx(0.001) and error < 1e-6
    assert judge(value, expected, 1e-5, tolerated(share, 0.0, 1000)).ok
    value[100:200] = 0
    assert not judge(value, expected, 1e-5, tolerated(share, 0.0, 1000)).ok
    assert deviation(torch.randn(1000), expected) == (pytest.approx(3, rel=3), 0.0)
    assert tolerated(0.0, 0.0, 10) == 0.0


def test_integers_may_differ_only_where_rounding_decides():
    expected = torch.arange(1000)
    value = expected.clone()
    value[5] += 1
    assert not judge(value, expected, 0.0).ok
    assert judge(value, expected, 0.0, tolerated(0.001, 0.0, 1000)).ok


def test_without_an_oracle_16_bit_types_are_still_judged():
    assert no_oracle(torch.bfloat16) < 0.1 and no_oracle(torch.float16) < 0.01
    assert no_oracle(torch.float32) == 256 * FP32
    assert no_oracle(torch.float64) < 1e-10


def test_nan_infinities_and_empty_tensors():
    expected = torch.tensor([1.0, math.nan, math.inf], dtype=torch.float64)
    assert judge(torch.tensor([1.0, math.nan, math.inf]), expected, 1e-6).ok
    assert not judge(torch.tensor([1.0, math.nan, -math.inf]), expected, 1e-6, 0.1).ok
    assert judge(torch.empty(0, 3), torch.empty(0, 3, dtype=torch.float64), 1e-6).ok
    assert not judge(torch.full((3,), math.nan), torch.zeros(3, dtype=torch.float64), 1.0).ok


def test_complex_numbers_are_two():
    value = torch.randn(50, dtype=torch.complex64)
    assert judge(value, value.to(torch.complex128), 1e-7).ok
    assert not judge(value.conj().resolve_conj(), value.to(torch.complex128), 1e-3).ok


class Named(torch.nn.Module):
    """Requests fp32 by name, mixes it in, and keeps it as a plain attribute."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((4, 4), 0.1))
        self.plain = torch.full((4,), 0.1)

    def forward(self, x):
        steps = torch.arange(4, dtype=torch.float32) / 3
        return (x.float() @ self.weight + self.plain) * steps.to(torch.float32) + torch.tensor(0.1, dtype=torch.float32)


def test_a_run_stays_in_fp64():
    model = Named()
    x = torch.rand(4, 4)
    eager = model(x)
    with torch.no_grad(), default_double(), Wide():
        precise = WideCopies().copy(model, "cpu", None)(x.double())
    assert precise.dtype == torch.float64
    steps = torch.arange(4, dtype=torch.float64) / 3
    tenth = torch.tensor(0.1, dtype=torch.float32).double()
    by_hand = (x.double() @ torch.full((4, 4), float(tenth), dtype=torch.float64) + tenth) * steps + tenth
    assert distance(precise, by_hand) < 1e-15 < distance(eager.detach(), by_hand)


def test_random_numbers_are_those_of_the_fp32_run():
    def draws(x: torch.Tensor) -> torch.Tensor:
        noise = torch.randn_like(x) + torch.rand(x.shape) + torch.empty_like(x).uniform_(0, 2) + torch.bernoulli(torch.full_like(x, 0.5))
        return torch.dropout(x, 0.5, True) + noise

    x = torch.rand(64, 64)
    torch.manual_seed(3)
    eager = draws(x)
    torch.manual_seed(3)
    with torch.no_grad(), default_double(), Wide():
        precise = draws(x.double())
    assert distance(eager, precise) < 1e-6


class Dequantised(torch.nn.Module):
    """Computes a 16-bit product in which one side is converted by name and the other is in 16 bits because its scales are."""

    def __init__(self, dtype: torch.dtype):
        super().__init__()
        self.dtype = dtype
        self.register_buffer("scales", (torch.rand(12, 7, generator=torch.Generator().manual_seed(1)) + 0.5).to(dtype))
        self.register_buffer("scale", torch.tensor(1.5, dtype=dtype))

    def forward(self, x):
        weight = (torch.arange(84).reshape(12, 7) % 5).to(self.dtype) * self.scales
        named = x.to(self.dtype)
        held = torch.zeros(3, 7, dtype=self.dtype) + self.scale
        return named @ weight, torch.addmm(held, named, weight), torch.cat([named, weight[:3]], dim=1), held


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_product_of_16_bit_that_is_named_on_one_side_has_an_oracle(dtype):
    """The side converted by name keeps 16-bit numbers; a single number next to it does not turn it into fp64."""
    x, model = torch.randn(3, 12, generator=torch.Generator().manual_seed(2)), Dequantised(dtype)
    eager = model(x)
    with torch.no_grad(), default_double(), Wide():
        precise = WideCopies().copy(model, "cpu", None)(x.double())
    exact = x.to(dtype).double() @ ((torch.arange(84).reshape(12, 7) % 5).double() * model.scales.double())
    assert torch.allclose(precise[0], exact, rtol=1e-14) and torch.allclose(precise[1], exact + 1.5, rtol=1e-14)
    assert [out.dtype for out in precise] == [torch.float64] * 3 + [dtype]
    assert torch.equal(precise[2][:, :12], x.to(dtype).double())
    assert 1e-15 < distance(eager[0], precise[0]) < 4 * torch.finfo(dtype).eps
