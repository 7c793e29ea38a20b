"""All sides of a block call from the same processor, each block from the next."""

import random
from types import SimpleNamespace

from verifier import pairs, timing


def sides_of(count, processors):
    device = SimpleNamespace(timed_processors=processors, sample_clocks=lambda: None)
    calls = []

    def side(name):
        def call(values, seed):
            calls.append((name, values, caller.processor))
            return timing.Call(inner=1, wall=1, copied=0, ahead=0, tree=None, specs=[], outputs=[], again=None, inputs_intact=[])

        caller = SimpleNamespace(party=SimpleNamespace(device=device), call=call, processor=None)
        return timing.Side(None, caller)

    return [side(name) for name in range(count)], calls


def test_a_block_is_on_one_processor_and_the_next_on_another():
    sides, calls = sides_of(3, 4)
    first = timing.measure(sides, lambda number: (number, 0), lambda *_: None, random.Random(1), 0, 2)
    timing.measure(sides, lambda number: (number, 0), lambda *_: None, random.Random(2), first, 3)
    assert {(number // 2, on) for _, number, on in calls} == {(0, 0), (1, 1), (2, 2), (3, 3), (4, 0)}
    assert len(calls) == 3 * 2 * 5


def test_where_parties_are_bound_to_none_nothing_is_said():
    sides, calls = sides_of(2, 0)
    timing.measure(sides, lambda number: (number, 0), lambda *_: None, random.Random(1), 0, 2)
    assert {on for _, _, on in calls} == {None}


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
