"""When a program counts as quick only with the weights that the constructor makes."""

from __future__ import annotations

import pytest

from verifier.correctness.shortcuts import ROUNDS, Shortcut

MS = 1_000_000


def after(*rounds: tuple[float, float]) -> Shortcut:
    found = Shortcut()
    for other, own in rounds:
        found.add(int(other * MS), int(own * MS))
    return found


def test_one_round_of_calls_alike_decides():
    found = after((1.2, 1.0))
    assert found.decided and not found.shows and found.said(1.0) == ""


def test_the_shortest_calls_of_all_rounds_are_compared():
    assert not after((5.0, 1.0)).decided and not after((1.8, 1.0)).decided
    assert after((5.0, 1.0), (1.0, 1.0)).decided and not after((5.0, 1.0), (1.0, 1.0)).shows
    found = after((5.0, 4.0), (5.0, 1.0), (4.0, 1.0))
    assert found.decided and "with other weights a call takes 4.0 times as long" in found.said(1.0), "one round was disturbed"


def test_what_pytorch_takes_longer_is_left_out():
    assert after(*[(5.0, 1.0)] * ROUNDS).said(4.0) == "" and after(*[(12.0, 1.0)] * ROUNDS).said(1.6)


@pytest.mark.parametrize(("other", "own"), [(0.04, 0.015), (1.9, 1.0)])
def test_small_differences_are_noise(other, own):
    assert not after(*[(other, own)] * ROUNDS).shows
