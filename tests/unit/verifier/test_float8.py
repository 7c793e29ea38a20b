"""Float8 tensors: they are transferred bit by bit, varied in fp32 within their range, and compared in steps."""

from __future__ import annotations

import math
import random
from types import SimpleNamespace

import pytest
import torch

from verifier import float8
from verifier.correctness.batches import deviations, judgements
from verifier.correctness.bounds import all_finite, judge, same_values
from verifier.correctness.chance import near
from verifier.correctness.decisions import off
from verifier.correctness.expectation import Expectations
from verifier.correctness.fingerprint import fingerprint
from verifier.correctness.inputs import DISTRIBUTIONS, Domain, domains, one_element, vary
from verifier.correctness.leaf import Leaf
from verifier.correctness.spread import rows_of
from verifier.judge.session import Run, Values
from verifier.layout import DTYPES, Spec, decode, encode, place, view
from verifier.parties.oracle import Rough, Wide, widen
from verifier.parties.reference import same
from verifier.parties.role import Role
from verifier.parties.widening import WideCopies
from verifier.randomising import hides, randomised

TYPES = sorted(float8.TYPES, key=str)
SIGNED = [dtype for dtype in TYPES if dtype != torch.float8_e8m0fnu]
of_each_type = pytest.mark.parametrize("dtype", TYPES, ids=str)


def drawn(dtype: torch.dtype, *shape: int, seed: int = 1) -> torch.Tensor:
    return float8.narrowed(torch.randn(shape, generator=torch.Generator().manual_seed(seed)), dtype)


def codes(dtype: torch.dtype) -> torch.Tensor:
    return torch.arange(256, dtype=torch.uint8).view(dtype)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8)


# The boundary


@of_each_type
def test_every_bit_crosses_the_boundary(dtype):
    tensors: list[torch.Tensor] = []
    tree = encode({"y": codes(dtype).view(16, 16).t(), "of": dtype}, tensors)
    (spec,) = [Spec.of(tensor) for tensor in tensors]
    assert (spec.nbytes, spec.stride, DTYPES[spec.dtype]) == (256, (1, 16), dtype) and spec.floating
    offsets, end = place([spec])
    memory = torch.zeros(end, dtype=torch.uint8)
    torch._foreach_copy_([view(memory, spec, offsets[0])], tensors)
    found = decode(tree, [view(memory, spec, offsets[0])])
    assert found["of"] == dtype and torch.equal(bits(found["y"]), bits(tensors[0]))
    assert fingerprint(found["y"]) == fingerprint(tensors[0])


# Steps


@of_each_type
def test_steps_ascend_with_the_numbers_from_zero(dtype):
    numbers, steps = codes(dtype).float(), float8.steps(codes(dtype)).tolist()
    known = [(float(number), step) for number, step in zip(numbers, steps, strict=True) if not number.isnan()]
    assert [step for _, step in sorted(known)] == sorted(step for _, step in known)
    assert len({step for _, step in known}) == len({number for number, _ in known})
    assert all((step > 0) == (number > 0) or dtype == torch.float8_e8m0fnu for number, step in known)
    assert {step for number, step in zip(numbers, steps, strict=True) if number.isnan()} == {float8.NOT_A_NUMBER}


def test_other_tensors_have_no_steps():
    for tensor in (torch.rand(3), torch.arange(3), torch.tensor([True])):
        assert float8.steps(tensor) is tensor and float8.wide(tensor) is tensor
    assert float8.steps(drawn(torch.float8_e5m2, 0, 4)).shape == (0, 4)


@of_each_type
def test_a_number_beyond_the_range_becomes_the_largest(dtype):
    made = float8.narrowed(torch.tensor([3e38, -3e38, math.nan, 1.0]), dtype).float()
    assert made[0] == made[1].abs() == torch.finfo(dtype).max and made[2].isnan() and made[3] == 1.0


# Comparison


@of_each_type
def test_equal_numbers_pass_and_one_step_in_one_element_does_not(dtype):
    own = drawn(dtype, 32, 64)
    assert judge(own, own.clone(), 0.0).ok and same_values(own, own.clone()) and same(own, own.clone()) and off(own, own.clone(), 0.0) == 0
    changed = own.clone()
    bits(changed)[3, 5] ^= 1
    judgement = judge(changed, own, 1e9)
    assert not judgement.ok and "1 of 2,048 elements are off; first at [3, 5]" in judgement.detail
    assert str(float(own[3, 5])) in judgement.detail, "the detail shows numbers, not steps"
    assert not same_values(changed, own) and not same(changed, own) and off(changed, own, 0.0) == 1
    assert judge(changed, own, 0.0, share=1 / 2048).ok and not judge(changed, own, 0.0, share=0.9 / 2048).ok
    assert deviations([changed], [own]) == [(0.0, 1 / 2048)]
    assert [one.ok for one in judgements([own, changed] * 3, [own] * 6, [0.0] * 6)] == [True, False] * 3


def test_not_a_number_equals_itself_alone():
    own = codes(torch.float8_e4m3fn)
    assert judge(own, own.clone(), 0.0).ok and same_values(own, own.clone()) and same(own, own.clone()) and not all_finite(own)
    finite = torch.where(own.isnan(), torch.zeros_like(own), own)
    assert not judge(finite, own, 0.0).ok and not judge(own, finite, 0.0).ok and all_finite(finite)


def test_zeros_and_numbers_of_other_sizes_never_pass_as_close():
    """A relative error of an eighth is one step, so a bound of some ulp would let any number pass."""
    own = drawn(torch.float8_e4m3fn, 64, 64)
    for other in (torch.zeros_like(own), float8.narrowed(own.float() * 0.95, own.dtype), float8.narrowed(own.float() + 0.05, own.dtype)):
        assert not judge(other, own, 16 * torch.finfo(own.dtype).eps, share=0.2).ok
    assert not float8.continuous(own) and rows_of(own, random.Random(1)) is None


def test_what_rounding_decides_is_off_by_few_steps():
    own = drawn(torch.float8_e4m3fn, 64, 64)
    step, jump = own.clone(), own.clone()
    bits(step)[0, 0] ^= 1
    bits(jump)[0, 0] ^= 0x18
    for value, right in ((step, True), (jump, False)):
        leaf = Leaf(own, step, 0.0, 1 / own.numel(), 0.0, tolerated=4 / own.numel())
        assert bool(leaf.finer(value, "fp32-strict")) != right
    assert "a float8 number is off by" in leaf.finer(jump, "fp32-strict")


def test_another_seed_is_told_from_rounding():
    own = drawn(torch.float8_e4m3fn, 64, 64)
    step = own.clone()
    bits(step)[0, 0] ^= 1
    assert near(step, own) and not near(drawn(torch.float8_e4m3fn, 64, 64, seed=2), own)


class Model:
    """A stand-in for a session: y is rounded to float8; in fp64, it lies above the midpoint between two steps by `TIE` / 100 of plain arithmetic's
    error."""

    def __init__(self) -> None:
        self.exact, self.runs = None, 0
        self.limits, self.clock = SimpleNamespace(oracle=60.0), lambda: 0.0
        self.values = Values({"l": []}, [], [])
        self.y = torch.full((64,), 1.0, dtype=torch.float64)
        self.y[5] = 1.0 + 2**-4 + 1e-8

    def oracle(self, values, rng, rough=None, times=1.0):
        self.runs += 1
        mode = Wide() if rough is None else Rough(rough, torch.float32, times=times)
        with mode:
            made = (self.y * 1.0).to(torch.float8_e4m3fn)
        return Run(Values({"t": 0}, [Spec.of(made)], [made]), [])

    def rollback(self):
        pass

    def eager(self, values, rng):
        return self.oracle(values, rng)


def test_a_step_is_allowed_only_between_two_steps():
    model = Model()
    expectations = Expectations(model, random.Random(1))
    oracle = model.oracle(model.values, 0)
    (own,) = oracle.outputs.tensors
    for at, allowed in ((5, True), (6, False)):
        leaf = Leaf(own, own, 0.0, 0.0, 0.0)
        expected = SimpleNamespace(oracle=oracle, leaves=[leaf], values=model.values, rng=0, before=None)
        value = own.clone()
        bits(value)[at] = bits(value)[at] - 1 if at == 5 else bits(value)[at] + 1
        expectations.near_ties(expected, [value])
        assert judge(value, own, 0.0, leaf.tolerated).ok == allowed
        assert not leaf.finer(value, "fp32-strict")


# Inputs and weights


@of_each_type
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_inputs_vary_within_the_range_of_their_type(dtype, name):
    own = drawn(dtype, 64, 32)
    for domain in domains([own]):
        other = own.clone()
        changed = vary(name, [other], domain, torch.Generator().manual_seed(3))
        assert other.dtype == dtype and all_finite(other)
        assert changed or domain.floats == "range"
        if dtype in SIGNED:
            assert off(other, own, 0.0) > 0
            assert float(other.float().abs().max()) > 0, "tiny values are no zeros"
        if domain.floats == "range":
            assert float(other.float().min()) >= float(own.float().min()) and float(other.float().max()) <= float(own.float().max())


def test_distributions_differ_in_sign_and_size():
    own = drawn(torch.float8_e4m3fn, 64, 64)
    made = {}
    for name in DISTRIBUTIONS:
        made[name] = own.clone()
        vary(name, [made[name]], Domain("any", "drawn"), torch.Generator().manual_seed(3))
    sizes = {name: float(tensor.float().square().mean().sqrt()) for name, tensor in made.items()}
    assert sizes["large"] > 40 and sizes["tiny"] < 0.03 and float(made["negative"].float().max()) <= 0
    assert len(float8.steps(made["tiny"]).unique()) > 16


@of_each_type
def test_one_element_changes(dtype):
    own = drawn(dtype, 8, 16)
    for seed in range(8):
        for wide in (False, True):
            other = one_element(own, seed, wide)
            assert other is not None and other.dtype == dtype and off(other, own, 0.0) == 1
    assert one_element(torch.ones(4, 4).to(torch.float8_e4m3fn), 1) is not None


@of_each_type
def test_weights_are_drawn_anew(dtype):
    own = drawn(dtype, 64, 64)
    for wide in (False, True):
        for parameter in (False, True):
            other = randomised("weight", own, parameter, torch.Generator().manual_seed(3), wide)
            assert other is not None and other.dtype == dtype and other.shape == own.shape and all_finite(other)
            assert off(other, own, 0.0) > 100
    assert hides(torch.ones(8).to(dtype), True)


# Precision


def test_a_policy_and_fp64_leave_float8_as_the_task_means_it():
    model = torch.nn.Linear(4, 4)
    model.register_buffer("codes", codes(torch.float8_e4m3fn))
    model.table = drawn(torch.float8_e5m2, 4)
    before = bits(model.codes).clone()
    exact = WideCopies().copy(model, "cpu", [])
    assert exact.weight.dtype == torch.float64 and exact.codes.dtype == torch.float8_e4m3fn and exact.table.dtype == torch.float8_e5m2
    assert torch.equal(bits(exact.codes), before) and exact.codes.data_ptr() != model.codes.data_ptr()
    assert torch.equal(bits(widen(model.codes)), before)
    role = Role.__new__(Role)
    role.precision, role.device = "bf16", SimpleNamespace(torch_device="cpu")
    cast = Role.cast_model(role, model)
    assert cast.weight.dtype == torch.bfloat16 and torch.equal(bits(cast.codes), before)
    assert Role.cast(role, codes(torch.float8_e5m2)).dtype == torch.float8_e5m2 and Role.cast(role, torch.rand(2)).dtype == torch.bfloat16


def test_a_product_of_float8_matrices_runs_in_fp64():
    a, b = drawn(torch.float8_e4m3fn, 16, 32), drawn(torch.float8_e4m3fn, 16, 32, seed=2).t()
    one, rows, columns = torch.tensor(0.5), torch.rand(16, 1), torch.rand(1, 16)
    exact = a.double() @ b.double()
    with Wide():
        whole = torch._scaled_mm(a, b, scale_a=one.double(), scale_b=one.double(), out_dtype=torch.float32)
        vectors = torch._scaled_mm(a, b, scale_a=rows.double(), scale_b=columns.double(), out_dtype=torch.bfloat16)
    assert whole.dtype == torch.float64 and torch.allclose(whole, exact / 4, rtol=1e-14)
    assert vectors.dtype == torch.bfloat16 and torch.equal(vectors, (exact * rows.double() * columns.double()).bfloat16())
    with Rough(1, torch.float32):
        rough = torch._scaled_mm(a, b, scale_a=one.double(), scale_b=one.double(), out_dtype=torch.float32)
    assert 0 < float((rough - whole).abs().max()) < 1e-4
