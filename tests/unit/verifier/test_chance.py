import torch

from verifier.correctness.chance import near, stochastic
from verifier.correctness.fingerprint import fingerprint
from verifier.parties.seeding import generators, seed_everything


def test_last_bits_are_no_chance():
    one = torch.randn(4000)
    two = one * (1 + 1e-6 * torch.randn(4000))
    assert not stochastic([one], [two], drew=False)
    assert stochastic([one], [two], drew=True)  # random numbers, however small
    assert not stochastic([one], [one.clone()], drew=True)  # drawn but not used


def test_a_generator_of_the_models_own_is_told_by_its_outputs():
    assert stochastic([torch.randn(100)], [torch.randn(100)], drew=False)


def test_infinities_and_nans_at_the_same_places_are_equal():
    one = torch.tensor([1.0, float("inf"), float("nan")])
    two = torch.tensor([1.0 + 1e-6, float("inf"), float("nan")])
    assert near(one, two)
    assert not near(one, torch.tensor([1.0, float("-inf"), float("nan")]))


def test_other_types():
    half = torch.randn(1000).half()
    assert near(half, half * 1.01) and not near(half, half * 1.1)
    indices = torch.arange(5000)
    other = indices.clone()
    other[0] = 7
    assert near(indices, other) and not near(indices, indices.flip(0))
    wave = torch.randn(64, dtype=torch.complex64)
    assert near(wave, wave * (1 + 1e-6)) and not near(wave, wave * 1j)
    assert not near(indices, indices.int())


def test_of_gigabytes_only_what_was_drawn_tells():
    one, two = fingerprint(torch.zeros(8)), fingerprint(torch.ones(8))
    assert not stochastic([one], [two], drew=False)
    assert stochastic([one], [two], drew=True)


def test_drawing_is_seen_in_the_generators():
    seed_everything(3)
    seeded = generators()
    assert generators() == seeded
    torch.relu(torch.ones(3))
    assert generators() == seeded
    torch.rand(1)
    assert generators() != seeded
