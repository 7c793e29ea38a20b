"""All sides in a block make their calls from the same processor, and each block uses the next one; programs are frozen while others are timed, and
the same pause follows every change of turn."""

import random
from functools import partial
from types import SimpleNamespace

import pytest

from verifier.timing import blocks as timing
from verifier.timing import idleness, pairs
from verifier.timing.call import Call


def sides_of(count, processors, programs=0, fails=None):
    """Returns `calls`, each with the side's name, the input's number, the processor, and the programs that were frozen meanwhile; and `pauses`, each
    with the number of calls before it and the number of programs that were frozen when it began."""
    calls, still, pauses = [], set(), []
    device = SimpleNamespace(
        timed_on=list(range(processors)),
        stands_on=list(range(processors)),
        sample_clocks=lambda: None,
        usual_wait_ns=lambda: None,
        settle=lambda: pauses.append((len(calls), len(still))),
        wait_ns=lambda: None,
    )
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
            return Call(inner=1, wall=1, copied=0, ahead=0, tree=None, specs=[], outputs=[], again=None, inputs_intact=[])

        def turn(uses, in_series):
            return [call(use.values, use.rng) for use in uses]

        caller = SimpleNamespace(party=parties[name], turn=turn, processor=None, watches=watches if name >= programs else [])
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


@pytest.mark.slow
def test_programs_stand_still_while_others_are_timed_and_only_then():
    sides, calls, still, pauses = sides_of(5, 4, programs=2)
    timing.measure(sides, lambda number: (number, 0), lambda *_: None, random.Random(3), 0, 30)
    assert {frozen for name, _, _, frozen in calls if name >= 2} == {frozenset({0, 1})}
    assert {frozen for name, _, _, frozen in calls if name < 2} == {frozenset()}
    assert not still
    firsts = {calls[at][0] < 2 for at in range(0, len(calls), 10)}
    assert firsts == {True, False}  # which kind begins a block is random
    assert all(sorted(name for name, *_ in calls[at : at + 5]) == list(range(5)) for at in range(0, len(calls), 5))
    for block in range(0, len(calls), 10):
        names = [name for name, *_ in calls[block : block + 10]]
        assert names[5:] == names[:5][::-1]
    of_programs = [name < 2 for name, *_ in calls]
    changes = [(at, mine) for at, mine in enumerate(of_programs) if not at or of_programs[at - 1] != mine]
    assert pauses == [(at, 0) for at, _ in changes] and {mine for _, mine in changes} == {
        True,
        False,
    }  # before both kinds; programs may work during the pause


@pytest.mark.parametrize("fails", [1, 4, 7, 12])
def test_nobody_is_left_standing_where_a_party_fails(fails):
    sides, calls, still, _ = sides_of(4, 4, programs=2, fails=fails)
    with pytest.raises(RuntimeError):
        timing.measure(sides, lambda number: (number, 0), lambda *_: None, random.Random(4), 0, 3)
    assert not still


@pytest.fixture
def diary(monkeypatch):
    """Returns the steps of `idleness.pause`, in order, with two programs that use a little time while they are watched."""
    done, used = [], iter(range(0, 100_000_000, 100_000))

    def now():
        return round(sum(step for step in done if isinstance(step, float)) * 1e9)

    monkeypatch.setattr(idleness, "time", SimpleNamespace(sleep=lambda seconds: done.append(seconds), monotonic_ns=now))
    device = SimpleNamespace(settle=lambda: done.append("settle"), wait_ns=lambda: done.append("wait") or 7, usual_wait_ns=lambda: 5)

    def watch(name):
        spawned = SimpleNamespace(
            freeze=lambda: done.append(f"freeze {name}"),
            thaw=lambda: done.append(f"thaw {name}"),
            cpu_ns=lambda: done.append(f"count {name}") or next(used),
        )
        return idleness.Watch(SimpleNamespace(device=device, spawned=spawned))

    return done, [watch("a"), watch("b")]


def test_a_pause_before_the_others_looks_and_stops_the_programs(diary):
    done, watches = diary
    idleness.pause(watches, looks=True)
    settle, look = idleness.SETTLE_SECONDS, idleness.LOOK_SECONDS
    assert done == ["settle", settle, "wait", "count a", "count b", look, "count a", "freeze a", "count b", "freeze b"]
    assert [watch.look_waits_ns for watch in watches] == [[7], [7]] and all(watch.used_ns and watch.still for watch in watches)


def test_a_program_that_is_awake_is_checked_again_and_for_longer(diary):
    done, watches = diary
    used = iter([0, 5_000_000, 5_000_000, 6_000_000])
    watches[0].party.spawned.cpu_ns = lambda: done.append("count a") or next(used)
    idleness.pause(watches, looks=True)
    settle, look, longer = idleness.SETTLE_SECONDS, idleness.LOOK_SECONDS, idleness.LONG_LOOK_SECONDS
    once = ["settle", settle, "wait", "count a", "count b", look, "count a", "count b", "freeze b"]
    assert done == [*once, settle, "count a", longer, "count a", "freeze a"]
    assert watches[0].used_ns == 6_000_000 and watches[0].open_ns == pytest.approx((look + longer) * 1e9)


def test_a_pause_before_the_programs_lets_them_go_and_takes_as_long(diary):
    done, watches = diary
    for watch in watches:
        watch.still = True
    idleness.pause(watches, looks=False)
    assert done == ["thaw a", "thaw b", "settle", idleness.SETTLE_SECONDS, "wait", idleness.LOOK_SECONDS]
    assert not any(watch.look_waits_ns or watch.used_ns or watch.still for watch in watches)


@pytest.mark.parametrize("fails", [1, 2, 3, 4])
def test_nobody_is_left_standing_where_a_pause_fails(fails):
    sides, _, still, pauses = sides_of(4, 4, programs=2)

    def gone():
        if len(pauses) == fails:
            raise RuntimeError("the device is gone")

    sides[0].caller.party.device.wait_ns = gone
    with pytest.raises(RuntimeError):
        timing.measure(sides, lambda number: (number, 0), lambda *_: None, random.Random(4), 0, 3)
    assert len(pauses) == fails and not still


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
