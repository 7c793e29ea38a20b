"""A tournament in the full tier is spread over rounds if a GPU's memory does not hold all of its processes simultaneously."""

from types import SimpleNamespace

import pytest

from verifier.limits import Limits
from verifier.timing.tournament import Tournament


def tournament(free: int | None, others: list[str] | None = None, tier: str = "full", peak: int = 9, eager: int = 0, spares: int = 0) -> Tournament:
    device = SimpleNamespace(kind="cuda", process_bytes=1, leader=lambda: None, free_bytes=lambda: free)
    ledger = SimpleNamespace(state=2, eager=eager)
    trials = SimpleNamespace(limits=Limits(), input_bytes=0, expected_specs=[], peak_bytes=lambda: peak, ledger=lambda: ledger)
    return Tournament(SimpleNamespace(device=device, spares=spares), trials, SimpleNamespace(tier=tier), 1, None, None, others=others)


@pytest.mark.parametrize(
    ("free", "rounds", "baselines"),
    [
        (None, [3], [3]),
        (129, [3], [3]),  # nine processes of 10 bytes fit into 70 % of it
        (120, [2, 1], [3, 0]),
        (99, [1, 1, 1], [1, 1, 1]),
        (10, [1, 1, 1], [1, 1, 1]),
    ],
)
def test_rounds(free, rounds, baselines):
    of = tournament(free)
    found = of._rounds(3, 3)
    assert [len(members) for members in found] == rounds and sorted(at for members in found for at in members) == [0, 1, 2]
    spread = of._spread(len(found))
    assert [len(names) for names in spread] == baselines
    assert sorted(name for names in spread for name in names) == ["compile", "compile-max-autotune", "cuda-graph"]


def test_pytorch_may_need_more_than_the_program():
    assert [len(members) for members in tournament(129, peak=1, eager=7)._rounds(3, 3)] == [3]
    assert [len(members) for members in tournament(129, peak=1, eager=16)._rounds(3, 3)] == [1, 1, 1], "seven processes of 19 bytes would not fit"


def test_tier_quick_has_eager_alone():
    of = tournament(10, tier="quick")
    assert [len(members) for members in of._rounds(1, 0)] == [1] and of._spread(1) == [[]]


@pytest.mark.parametrize(
    ("free", "spares", "half", "after"),
    [
        (129, 9, 0.0, [0]),  # six processes; the timed ones would have to wait for their imports
        (120, 0, 0.0, [2, 0]),
        (99, 0, 0.0, [3, 3, 0]),
        (59, 9, 0.0, [3, 3, 4]),  # the next job takes those that no further pair needs
        (59, 9, 0.1, [3, 3, 4, 2, 0]),
    ],
)
def test_what_the_next_round_takes_begins_to_import_torch_in_this_one(monkeypatch, free, spares, half, after):
    of = tournament(free, spares=spares)
    monkeypatch.setattr(Tournament, "_estimate", lambda self, pairs: SimpleNamespace(half=half))
    planned = list(of._plan([]))
    assert [round_.after for round_ in planned] == after
    assert [of._takes(round_.members, round_.others) for round_ in planned[1:]] == after[:-1]
