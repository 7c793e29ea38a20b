"""A series: its form, the inputs of its calls, and the steps recorded in the page that judge and party share."""

from __future__ import annotations

import os
import random
import signal
import socket
import time
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch

from verifier.judge.session import Values
from verifier.layout import Spec, view
from verifier.shim.clock import Clock, Leader, Native, SeriesFailed, SharedPage, Stamped, build_clock
from verifier.timing.series import COUNTED, LEAD, MORE, MORE_BYTES, MOST_BYTES, Form, Line, Use, Uses, form, most_bytes, series_bytes

MIB = 1 << 20


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return build_clock(tmp_path_factory.mktemp("clock"))


@pytest.mark.parametrize(
    ("exchanged", "shortest", "longest", "expected"),
    [
        (1 * MIB, 0.02, 0.1, Form(LEAD, COUNTED)),
        (300 * MIB, 0.02, 0.1, Form(0, 1)),  # memory has no room for a second call
        (200 * MIB, 0.02, 0.1, Form(1, 1)),
        (1 * MIB, 5.0, 8.0, Form(1, 2)),
        (1 * MIB, 50.0, 80.0, Form(0, 1)),  # the wake-up time is negligible in comparison
        (1 * MIB, 0.3, 30.0, Form(1, 1)),  # a slow baseline determines the number of calls
        (MOST_BYTES + 1, 0.02, 0.1, None),
    ],
)
def test_how_many_calls_a_series_has(exchanged, shortest, longest, expected):
    assert form(exchanged, shortest, longest) == expected


@pytest.mark.parametrize(
    ("exchanged", "memory", "expected"),
    [
        (200 * MIB, 80 << 30, Form(LEAD, COUNTED)),
        (512 * MIB, 80 << 30, Form(LEAD, 2)),
        (1024 * MIB, 80 << 30, Form(1, 1)),
        (1025 * MIB, 80 << 30, None),  # values of that size are lent, not copied
        (200 * MIB, 24 << 30, Form(LEAD, 1)),
        (300 * MIB, 8 << 30, Form(0, 1)),
    ],
)
def test_a_gpu_has_room_for_lead_in_calls(exchanged, memory, expected):
    assert form(exchanged, 0.1, 0.3, memory) == expected
    assert series_bytes(exchanged, memory) == (2 * min(8 * exchanged, most_bytes(memory)) if expected else 0)


def drawn(number):
    generator = torch.Generator().manual_seed(number)
    tensors = [torch.rand(4, 8, generator=generator), torch.randint(0, 9, (6,), generator=generator)]
    return Values({"l": [{"t": 0}, {"t": 1}]}, [Spec.of(tensor) for tensor in tensors], tensors), number


def test_no_two_uses_have_the_same_inputs_and_draws_stay_as_they_were():
    uses = Uses(drawn, random.Random(1), Form(2, 6, seeded=True))
    uses.next(0)
    given = uses.next(1)
    assert [use.counted for use in given] == [False] * 2 + [True] * 6
    seen = set()
    for use in given:
        with use.applied() as tensors:
            seen.add(tuple(tensors[0].flatten().tolist()))
    assert len(seen) >= 7  # an element may be given a value of its own
    assert len({use.rng for use in given}) == len(given)
    fresh = {tuple(drawn(number)[0].tensors[0].flatten().tolist()) for number in (0, 1)}
    assert {tuple(use.values.tensors[0].flatten().tolist()) for use in given} <= fresh
    assert all(change[0].is_floating_point() for use in given for change in use.changes)


@pytest.mark.parametrize("shape", [Form(2, 6), Form(0, 2), Form(1, 1)])
def test_one_counted_call_of_a_series_has_inputs_of_a_new_draw(shape):
    """In that call, a program gains nothing by remembering earlier inputs."""
    uses, seen, places = Uses(drawn, random.Random(1), shape), set(), set()
    for number in range(40):
        given = uses.next(number)
        new = [use for use in given if use.new]
        assert len(new) == 1 and (new[0].counted or not number)
        for use in given:
            draw = tuple(use.values.tensors[1].tolist())
            assert use.new is (draw not in seen) or not number
        seen |= {tuple(use.values.tensors[1].tolist()) for use in given}
        places |= {at for at, use in enumerate(given) if use.new}
    assert len(places - {0}) >= shape.counted - (shape.lead == 0)


def test_some_series_have_more_lead_in_calls():
    shape = form(1 * MIB, 0.02, 0.1)
    assert shape is not None and shape.more == MORE and MORE * MIB <= MORE_BYTES
    assert [form(*some).more for some in ((16 * MIB, 0.02, 0.1), (12 * MIB, 0.02, 0.1), (1 * MIB, 0.3, 6.0), (1 * MIB, 5.0, 8.0))] == [0, 2, 2, 0]
    uses = Uses(drawn, random.Random(1), shape)
    series = [uses.next(number) for number in range(200)]
    leads = [sum(not use.counted for use in given) for given in series]
    assert all(sum(use.counted for use in given) == COUNTED and given[-1].counted for given in series)
    assert set(leads) == {LEAD, *range(LEAD + 1, LEAD + MORE + 1)} and 120 < leads.count(LEAD) < 190
    assert all(use.counted for given in series[1:] for use in given if use.new)
    assert series_bytes(1 * MIB) == 2 * (LEAD + COUNTED + MORE) * MIB and series_bytes(12 * MIB) == 2 * MORE_BYTES


def test_draws_of_any_size_are_used_again(monkeypatch):
    monkeypatch.setattr("verifier.timing.series.KEPT_BYTES", 1)
    uses = Uses(drawn, random.Random(1), Form(1, 1))
    uses.next(0)
    given = uses.next(1)
    assert [use.new for use in given] == [False, True]


def led(library, party, count=3, seconds=20.0, warm=()):
    """Runs the judge's side of a series, with `party(clock, fd, inputs)` in a separate process and masked inputs. Returns the judge's timestamps."""
    native = Native(library)
    leader, page = Leader(native, spins=False), SharedPage()
    leader.begin(page.address)
    mine, theirs = socket.socketpair()
    inputs = torch.arange(count * 64, dtype=torch.float32).view(count, 64).clone().share_memory_()
    plain, keys = inputs.clone(), [(7 + number, 9) for number in range(count)]
    for number, key in enumerate(keys):
        leader.mask(inputs[number].data_ptr(), 256, key)
    assert not torch.equal(inputs, plain)
    child = os.fork()
    if not child:
        clock = Clock(native)
        clock.open_page(page.descriptor)
        party(clock, theirs.fileno(), inputs)
        time.sleep(60)
    try:
        return leader.lead(page.address, mine.fileno(), keys, seconds, warm=warm), inputs, plain
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        mine.close(), theirs.close()


def serve(clock, fd, inputs, call, count):
    for number in range(count):
        clock.wait(fd, number, inputs[number].data_ptr(), 256)
        call(number, inputs)
        clock.ended()
        clock.copied()


def test_inputs_can_be_read_in_their_turn_and_not_before(library):
    seen = torch.zeros(3, 3, 64).share_memory_()

    def call(number, inputs):
        seen[number].copy_(inputs)
        time.sleep(0.01)

    stamped, _, plain = led(library, lambda clock, fd, inputs: serve(clock, fd, inputs, call, 3))
    assert len(stamped) == 3 and all(0.009e9 < one.own <= one.judged < 1e9 and one.ahead > 0 and one.copied > 0 for one in stamped)
    for number, inputs in enumerate(seen):
        assert torch.equal(inputs[: number + 1], plain[: number + 1])
        assert not any(torch.equal(inputs[later], plain[later]) for later in range(number + 1, 3))


def test_what_is_done_after_the_clock_is_in_the_time_of_the_copy(library):
    def party(clock, fd, inputs):
        for number in range(3):
            clock.wait(fd, number, inputs[number].data_ptr(), 256)
            clock.ended()
            time.sleep(0.02)
            clock.copied()

    stamped, *_ = led(library, party)
    assert all(one.copied > 0.019e9 > one.judged for one in stamped)


def test_a_series_that_ends_early_says_how(library):
    def aborts(clock, fd, inputs):
        clock.wait(fd, 0, inputs[0].data_ptr(), 256)
        clock.abort()

    def speaks(clock, fd, inputs):
        clock.wait(fd, 0, inputs[0].data_ptr(), 256)
        os.write(fd, b"x")

    def copies_first(clock, fd, inputs):
        clock.wait(fd, 0, inputs[0].data_ptr(), 256)
        clock.copied()

    for party, cause in ((aborts, "message"), (speaks, "message"), (copies_first, "turn"), (lambda *_: None, "time")):
        with pytest.raises(SeriesFailed) as failed:
            led(library, party, seconds=0.5)
        assert failed.value.cause == cause


def test_inputs_are_masked_before_they_are_shared(library):
    """A thread of the program may watch the inputs' memory while the judge writes to it."""
    native, seen = Native(library), []
    values, _ = drawn(5)
    plain = Leader(native, spins=False)
    arenas = {name: SimpleNamespace(bytes=torch.zeros(4096, dtype=torch.uint8)) for name in ("in", "out")}
    first, last = arenas["in"].bytes.data_ptr(), arenas["in"].bytes.data_ptr() + 4096

    def mask(address, nbytes, key):
        assert not first <= address < last and not arenas["in"].bytes[len(seen) * nbytes :].any()
        plain.mask(address, nbytes, key)
        seen.append(nbytes)

    def series(message, keys, limit, hand_over, glances, warm):
        assert warm == [1]
        hand_over()
        for call, key in zip(message["calls"], keys, strict=True):
            assert not torch.equal(view(arenas["in"].bytes, values.specs[0], call["offsets"][0]), values.tensors[0])
            plain.mask(first + call["begin"], message["nbytes"], key)
        return [Stamped(1, 1, 1, 1, 1, 0, 1, 2)] * len(keys), SimpleNamespace(message={"calls": [None] * len(keys)}), 60

    device = SimpleNamespace(leader=lambda: SimpleNamespace(mask=mask, spins=False), sync=lambda: None, flush_caches=lambda: None)
    party = SimpleNamespace(device=device, arenas=arenas, arena=lambda name, size: arenas[name], series=series)
    made = Line(party, [Spec.of(torch.zeros(4))], 1.0).calls([Use(values, None, True, warm=number == 1) for number in range(3)], lambda: None)
    assert len(seen) == 3 and all(call.inputs_intact == [True, True] and call.around == 20 for call in made)


def test_before_some_calls_no_caches_are_flushed(library):
    def party(clock, fd, inputs):
        clock._native.use_flush(256 * MIB)
        serve(clock, fd, inputs, lambda number, inputs: None, 6)

    stamped, _, _ = led(library, party, 6, warm=[4])
    away = [one.began - before.ended for before, one in pairwise(stamped)]  # before calls 1 to 5; flushing takes most of this time
    cold = [(time, one.ahead) for number, (time, one) in enumerate(zip(away, stamped[1:], strict=True), 1) if number != 4]
    assert away[3] < min(time for time, _ in cold) / 2
    assert all(ahead < time / 4 for time, ahead in cold), "the flush is not charged: processes differ there by more than a short call takes"


def test_some_series_have_a_call_with_warm_caches():
    uses = Uses(drawn, random.Random(1), Form(2, 6, warms=True))
    places = [[at for at, use in enumerate(uses.next(number)) if use.warm] for number in range(200)]
    assert {at for one in places for at in one} == set(range(2, 8)) and 40 < sum(map(len, places)) < 95 and max(map(len, places)) == 1
    for shape in (Form(1, 2, warms=True), Form(2, 6)):
        uses = Uses(drawn, random.Random(1), shape)
        assert not any(use.warm for number in range(30) for use in uses.next(number))
