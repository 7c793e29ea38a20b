"""Every input varies, within the domain that the task's own inputs suggest."""

from __future__ import annotations

import pytest
import torch

from verifier.correctness.inputs import DISTRIBUTIONS, EACH, Domain, changeable, concentrate, domains, on_a_grid, one_element, other_constant, vary
from verifier.correctness.trial_plan import with_empty_row

WIDE = Domain("any", "drawn")


def varied(name: str, tensor: torch.Tensor, domain: Domain = WIDE, seed: int = 3) -> torch.Tensor:
    other = tensor.clone()
    vary(name, [other], domain, torch.Generator().manual_seed(seed))
    return other


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_integers_stay_within_their_range_and_vary(name):
    own = torch.randint(-7, 90, (64, 32), generator=torch.Generator().manual_seed(1), dtype=torch.int16)
    other = varied(name, own)
    assert other.dtype == own.dtype and not torch.equal(own, other)
    assert int(other.min()) >= int(own.min()) and int(other.max()) <= int(own.max())


def test_integers_are_skewed_repeated_and_permuted():
    own = torch.randint(0, 1000, (4096,), generator=torch.Generator().manual_seed(1))
    assert float((varied("heavy-tailed", own) < 100).double().mean()) > 0.4
    assert len(varied("tiny", own).unique()) < 300
    assert torch.equal(varied("negative", own).sort().values, own.sort().values)


def test_an_order_is_permuted_and_offsets_stay_offsets():
    order = torch.arange(512)
    other = varied("heavy-tailed", order)
    assert not torch.equal(other, order) and torch.equal(other.sort().values, order)
    offsets = torch.tensor([0, 4, 9, 9, 20, 64])
    for domain in (WIDE, Domain("any", "permuted")):
        for name in DISTRIBUTIONS:
            moved = varied(name, offsets, domain)
            assert int(moved[0]) == 0 and int(moved[-1]) == 64 and bool((moved.diff() >= 0).all())


def test_a_mask_gets_a_row_without_any_and_a_full_one():
    mask = torch.arange(24).view(2, 3, 4) % 4 < 2
    made = with_empty_row(mask, 5)
    assert sorted(made.view(6, 4).sum(-1).tolist()) == [0, 2, 2, 2, 2, 4] and made.shape == mask.shape
    assert not bool(with_empty_row(mask[:1, :1], 5).any())


def test_labels_of_rows_are_not_offsets():
    """Both ascend from zero. Labels are as many as the rows and valid in any order; the last offset is the number of rows."""
    x, labels, begins = torch.randn(64, 2), torch.arange(8).repeat_interleave(8), torch.arange(0, 65, 8)
    for name in DISTRIBUTIONS:
        tensors = [x.clone(), labels.clone(), begins.clone()]
        assert vary(name, tensors, Domain("any", "drawn"), torch.Generator().manual_seed(1))
        assert bool((tensors[2].diff() >= 0).all()) and set(tensors[1].tolist()) <= set(range(8))
        assert name == "spiked" or not bool((tensors[1].diff() >= 0).all())
    tensors = [x.clone(), labels.clone(), begins.clone()]
    vary("tiny", tensors, Domain("any", "permuted"), torch.Generator().manual_seed(1))
    assert sorted(tensors[1].tolist()) == labels.tolist() != tensors[1].tolist() and torch.equal(tensors[2], begins)


def test_booleans_are_drawn_and_no_row_is_all_the_same():
    keep = torch.ones(64, 128, dtype=torch.bool)
    for name in ("heavy-tailed", "negative", "tiny", "large"):
        other = varied(name, keep)
        assert bool(other.any(-1).all()) and not bool(other.all(-1).any()), name
    assert 1 <= int((~varied("spiked", keep)).sum()) <= 3


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_narrower_domains_keep_signs_and_range(name):
    own = torch.rand(64, 64, generator=torch.Generator().manual_seed(2))
    signs, within = varied(name, own, Domain("signs", "own")), varied(name, own, Domain("range", "own"))
    assert bool((signs >= 0).all()) and not torch.equal(signs, own)
    assert float(within.min()) >= float(own.min()) and float(within.max()) <= float(own.max()) and not torch.equal(within, own)


def test_domains_are_those_that_make_a_difference():
    floating, discrete = torch.rand(4), torch.arange(4)
    assert domains([]) == []
    assert [domain.floats for domain in domains([floating])] == ["any", "signs", "range"]
    assert [domain.discrete for domain in domains([discrete])] == ["drawn", "permuted"]
    assert domains([floating, discrete])[0] == WIDE and domains([floating, discrete])[-1] == Domain("range", "own")


def test_one_element_of_each_input_changes():
    tensors = [torch.rand(8, 8), torch.ones(5, 7), torch.zeros(9, dtype=torch.bool), torch.arange(40), torch.rand(6, 4).t(), torch.tensor(2.0)]
    assert changeable(tensors) == [[index] for index in range(EACH)] and changeable([*tensors, *tensors])[-1] == list(range(EACH, 2 * EACH))
    for tensor in tensors:
        other = one_element(tensor, 5)
        assert other is not None and int((other != tensor).sum()) == 1
    assert one_element(torch.zeros(9, dtype=torch.int64), 5) is None  # a larger number may point outside the tensor that it indexes
    assert one_element(torch.zeros(4, dtype=torch.complex64), 5) is not None


def test_a_boundary_between_parts_moves_within_both():
    offsets = torch.tensor([0, 16, 32, 32, 64])
    seen = {tuple(other.tolist()) for seed in range(20) if (other := one_element(offsets, seed)) is not None}
    assert len(seen) > 2 and tuple(offsets.tolist()) not in seen
    assert all(list(one) == sorted(one) and one[0] == 0 and one[-1] == 64 for one in seen)
    assert one_element(torch.tensor([0, 0, 4, 4]), 1) is not None and one_element(torch.tensor([0, 7]), 1) is None


@pytest.mark.parametrize("tensor", [torch.tensor([37]), torch.tensor(37), torch.full((64,), 37, dtype=torch.int32)])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_integers_that_are_all_the_same_become_lower(tensor, name):
    """Equal integers may be, for example, the position of a decoding step or the lengths of full rows: a lower number is valid wherever the given one
    is."""
    made = tensor.clone()
    assert vary(name, [made], Domain("any", "drawn"), torch.Generator().manual_seed(1)) or (name == "spiked" and tensor.numel() < 16)
    assert made.dtype == tensor.dtype and int(made.min()) >= 1 and int(made.max()) <= 37
    changed = one_element(tensor, 3)
    assert int((changed != tensor).sum()) == 1 and 18 <= int(changed.min()) < 37


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_zeros_and_ones_are_drawn_like_booleans(name, number):
    """A tensor of zeros or ones may be, for example, a mask or the types of tokens: a program that never reads it is wrong."""
    made = varied(name, torch.full((8, 32), number))
    assert made.dtype == torch.int64 and set(made.unique().tolist()) == {0, 1}
    assert torch.equal(varied(name, made, Domain("any", "own")), made)


def test_spikes_are_in_one_half_and_the_changed_element_is_in_the_other():
    """A program may examine one half of an input to decide whether the other needs any work."""
    own = torch.rand(1200)
    spiked = (varied("spiked", own) != own).nonzero()
    changed = [one_element(own, seed, wide=True) for seed in range(40)]
    assert int(spiked.min()) >= 600 and max(int((other != own).nonzero()) for other in changed) < 600
    assert all(float(other.min()) < 0 for other in changed) and float(one_element(own, 1).min()) >= 0


def test_each_input_may_have_a_domain_of_its_own():
    own = [torch.rand(64, 64), torch.rand(64, 64), torch.rand(64, 64)]
    made = [tensor.clone() for tensor in own]
    assert vary("heavy-tailed", made, [Domain("range", "own"), WIDE, None], torch.Generator().manual_seed(1))
    assert bool((made[0] >= 0).all()) and bool((made[1] < 0).any()) and torch.equal(made[2], own[2])


@pytest.mark.parametrize("whole", [True, False])
def test_on_a_grid_many_numbers_are_equal_and_none_leaves_the_range(whole):
    own = [torch.randn(64, 64), torch.rand(64, 64) + 0.5, torch.arange(64), torch.full((32,), 3.0)]
    found = [tensor.clone() for tensor in own]
    assert on_a_grid(found, whole)
    for before, after in zip(own[:2], found, strict=False):
        assert len(after.unique()) <= 40 and float(after.min()) >= float(before.min()) and float(after.max()) <= float(before.max())
    assert bool((found[0] == 0).any()) is whole or not whole
    assert torch.equal(found[2], own[2]) and torch.equal(found[3], own[3]), "there is nothing to round"
    assert not on_a_grid([torch.arange(64), torch.rand(3)], whole)


def test_on_a_grid_what_is_not_finite_stays():
    x = torch.randn(64)
    x[3], x[5] = float("-inf"), float("nan")
    assert on_a_grid([x], True) and float(x[3]) == float("-inf") and bool(x[5].isnan()) and int(x.isfinite().sum()) == 62


@pytest.mark.parametrize(
    "own",
    [
        torch.zeros(8, 1, dtype=torch.int32),
        torch.ones(16, dtype=torch.bool),
        torch.zeros((), dtype=torch.int64),
        torch.full((4, 4), 128, dtype=torch.uint8),
    ],
)
def test_integers_and_booleans_that_are_all_equal_have_other_values(own):
    for seed in range(8):
        other = other_constant(own, torch.Generator().manual_seed(seed))
        assert other is not None and other.shape == own.shape and other.dtype == own.dtype and not torch.equal(other, own)


def test_tables_of_a_constructor_have_no_other_values():
    generator = torch.Generator().manual_seed(1)
    for own in (torch.tril(torch.ones(4, 4, dtype=torch.bool)), torch.arange(8), torch.zeros(4), torch.zeros(0, dtype=torch.int64)):
        assert other_constant(own, generator) is None


def test_few_numbers_are_left_at_corresponding_places() -> None:
    generator = torch.Generator().manual_seed(3)
    inputs = [torch.randn(8, 6, 40, generator=generator), torch.randn(8, 6, 40, generator=generator), torch.randn(500, generator=generator)]
    counts, before = torch.arange(40), [tensor.clone() for tensor in inputs]
    assert concentrate([*inputs, counts], 7) and torch.equal(counts, torch.arange(40))
    for tensor, own in zip(inputs, before, strict=True):
        left = tensor != 0
        assert int(left.sum()) == 1 and torch.equal(tensor[left], own[left])
    assert torch.equal(inputs[0] != 0, inputs[1] != 0)
    assert not concentrate([torch.randn(8), counts], 7)
