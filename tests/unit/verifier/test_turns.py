"""All sides of a block call from the same processor, each block from the next."""

import random
from functools import partial
from types import SimpleNamespace

import pytest

from verifier import idleness, pairs, timing


def sides_of(count, processors, programs=0, fails=None):
    """`calls`: name of the side, number of the input, processor, and which programs stand still meanwhile; `pauses`: before which of them, and
    whether it is a program's."""
    device = SimpleNamespace(timed_processors=processors, sample_clocks=lambda: None, usual_wait_ns=lambda: None)
    calls, still, pauses = [], set(), []
    parties = [
        SimpleNamespace(device=device, spawned=SimpleNamespace(freeze=partial(still.add, name), thaw=partial(still.discard, name), cpu_ns=lambda: 0))
        for name in range(count)
    ]
    watches = [idleness.Watch(party) for party in parties[:programs]]

    def side(name):
        def call(values, seed):
            calls.append((name, values, caller.processor, frozenset(still)))
            if fails == len(calls):
                raise RuntimeError("a party failed")
            return timing.Call(inner=1, wall=1, copied=0, ahead=0, tree=None, specs=[], outputs=[], again=None, inputs_intact=[])

        def pause(watches, programs):
            pauses.append((len(calls), programs))
            for watch in watches:
                watch.go() if programs else watch.stop()

        caller = SimpleNamespace(party=parties[name], call=call, pause=pause, processor=None, watches=watches if name >= programs else [])
        return timing.Side(None, caller)

    return [side(name) for name in range(count)], calls, still, pauses


def test_a_block_is_on_one_processor_and_the_next_on_another():
    sides, calls, *_ = sides_of(3, 4)
    first = timing.measure(sides, lambda number: (number, 0), lambda *_: None, random.Random(1), 0, 2)
    timing.measure(sides, lambda number: (number, 0), lambda *_: None, random.Random(2), first, 3)
    assert {(number // 2, on) for _, number, on, _ in calls} == {(0, 0), (1, 1), (2, 2), (3, 3), (4, 0)}
    assert len(calls) == 3 * 2 * 5


def test_where_parties_are_bound_to_none_nothing_is_said():
    sides, calls, *_ = sides_of(2, 0)
    timing.measure(sides, lambda number: (number, 0), lambda *_: None, random.Random(1), 0, 2)
    assert {on for _, _, on, _ in calls} == {None}


def test_programs_stand_still_while_others_are_timed_and_only_then():
    sides, calls, still, pauses = sides_of(5, 4, programs=2)
    timing.measure(sides, lambda number: (number, 0), lambda *_: None, random.Random(3), 0, 30)
    assert {frozen for name, _, _, frozen in calls if name >= 2} == {frozenset({0, 1})}
    assert {frozen for name, _, _, frozen in calls if name < 2} == {frozenset()}
    assert not still
    firsts = {calls[at][0] < 2 for at in range(0, len(calls), 10)}
    assert firsts == {True, False}  # chance decides who begins a block
    assert all(sorted(name for name, *_ in calls[at : at + 5]) == list(range(5)) for at in range(0, len(calls), 5))
    for block in range(0, len(calls), 10):
        names = [name for name, *_ in calls[block : block + 10]]
        assert names[5:] == names[:5][::-1]
    of_programs = [name < 2 for name, *_ in calls]
    changes = [(at, mine) for at, mine in enumerate(of_programs) if not at or of_programs[at - 1] != mine]
    assert pauses == changes and {mine for _, mine in changes} == {True, False}  # the same pause before both kinds


@pytest.mark.parametrize("fails", [1, 4, 7, 12])
def test_nobody_is_left_standing_where_a_party_fails(fails):
    sides, calls, still, _ = sides_of(4, 4, programs=2, fails=fails)
    with pytest.raises(RuntimeError):
        timing.measure(sides, lambda number: (number, 0), lambda *_: None, random.Random(4), 0, 3)
    assert not still


def test_who_comes_up_first_is_left_to_chance():
    firsts = set()
    for seed in range(20):
        seen = []

        def together(items, seen=seen):
            seen += items
            return [item.upper() for item in items]

        assert pairs.shuffled(together, ["program", "eager", "other"], seed) == ["PROGRAM", "EAGER", "OTHER"]
        firsts.add(seen[0])
    assert firsts == {"program", "eager", "other"} and pairs.shuffled(list, [], 1) == []
