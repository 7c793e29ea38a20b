"""A series of timed calls of one party: lead-in calls followed by counted ones, with no messages between them (`verifier/shim/series.c`).

On a GPU host, a single call that starts when a message arrives includes 110 to 200 us of wake-up latency on every side, so short calls look alike. In
a series, the previous call has just run the same code, as in a user's loop. The device's caches are as cold as in single calls, and no call can do
another's work.
"""

from __future__ import annotations

import contextlib
import random
import secrets
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from verifier.correctness.bounds import same_values
from verifier.judge.asking import Party
from verifier.judge.memory import large
from verifier.judge.session import Values, dump, fill, views
from verifier.layout import Spec, place, read_specs, view
from verifier.shim.clock import Stamped
from verifier.timing.call import POISON, Call

if TYPE_CHECKING:
    from verifier.integrity.sampling.glancing import Glances

MOST_BYTES = 512 << 20  # total bytes of the inputs and outputs of all calls in a series, wherever there is no more memory
# On a GPU, memory for two lead-in calls of most tasks. Without it, calls of 0.1 to 0.3 ms that exchange 170 to 512 MiB came out 20 us (one counted
# call) to 130 us (no lead-in call) too slow on an H100.
MOST_GPU_BYTES, GPU_SHARE = 2 << 30, 1 / 40
LEAD, COUNTED = 2, 6  # maximum numbers of calls
# Some series have more lead-in calls, so that the first call after a pause cannot know for which calls to work ahead. These calls exchange few bytes.
MORE, MORE_BYTES, LONGER = 8, 128 << 20, 1 / 6  # maximum number; maximum bytes of all calls of such a series; probability of such a series
LONG_MS, WHOLE_MS = 10.0, 60.0  # call length for which wake-up latency is negligible; maximum total length of the longest side's calls in a series
WARM, LEAST_COUNTED = 1 / 3, 3  # probability that a series has a call with warm caches; minimum number of counted calls for this
KEPT_DRAWS, KEPT_BYTES = 3, 64 << 20  # number of earlier draws that are reused if each has at most this size; otherwise one


@dataclass(frozen=True)
class Form:
    """The numbers of calls in a series."""

    lead: int
    counted: int
    seeded: bool = False  # whether each call draws random numbers, from its own seed
    warms: bool = False  # whether some series have a call before which no caches are flushed
    more: int = field(default=0, compare=False)  # maximum number of lead-in calls that some series have in addition

    @property
    def calls(self) -> int:
        return self.lead + self.counted


def most_bytes(memory: int | None) -> int:
    """Returns the maximum number of bytes that the inputs and outputs of a series take on a device with `memory` bytes of its own (null: none)."""
    return MOST_BYTES if memory is None else max(MOST_BYTES, min(MOST_GPU_BYTES, int(GPU_SHARE * memory)))


def form(exchanged: int, shortest_ms: float, longest_ms: float, memory: int | None = None, seeded: bool = False, warms: bool = False) -> Form | None:
    """Chooses the form for calls that exchange `exchanged` bytes and take from `shortest_ms` to `longest_ms` on the sides that are timed in turn, on
    a device with `memory` bytes of its own (null: none); null if a series does not fit there."""
    room = most_bytes(memory) // max(exchanged, 1)
    if room < 1 or large(exchanged):
        return None
    lead = 0 if shortest_ms > LONG_MS else 1 if shortest_ms > LONG_MS / 5 else LEAD
    room = max(min(room, int(WHOLE_MS / max(longest_ms, 1e-3))), 1)
    lead = min(lead, max(room - 1, 0))
    counted = min(COUNTED, 1 + int(LONG_MS / 2 / max(shortest_ms, 1e-3)), max(room - lead, 1))
    more = min(MORE, room - lead - counted, MORE_BYTES // max(exchanged, 1) - lead - counted) if lead == LEAD else 0
    return Form(lead, counted, seeded, warms, max(more, 0))


def series_bytes(exchanged: int, memory: int | None = None) -> int:
    """Returns the maximum number of bytes that the calls of such a series take beyond those of a single call, in the party and in the judge's
    copies."""
    most = most_bytes(memory)
    if exchanged > most or large(exchanged):
        return 0
    usual, longer = (LEAD + COUNTED) * exchanged, min((LEAD + COUNTED + MORE) * exchanged, MORE_BYTES)
    return 2 * min(max(usual, longer), most)


@dataclass
class Use:
    """The inputs of one call: a draw in which one element of each floating-point tensor is replaced by another element's value, so that no two uses
    are equal."""

    values: Values
    rng: int | None  # null: the call draws no random numbers and is not seeded
    counted: bool
    new: bool = True  # whether it is the first use of its draw, so that the party has seen no similar inputs
    warm: bool = False  # whether the call runs without a preceding cache flush
    changes: list[tuple[torch.Tensor, tuple[int, ...], tuple[int, ...]]] = field(default_factory=list)  # tensor, element, element that it copies

    def copied(self) -> Values:
        """Returns copies of the inputs that outlast the series."""
        with self.applied() as tensors:
            return Values(self.values.tree, self.values.specs, [tensor.clone(memory_format=torch.preserve_format) for tensor in tensors])

    @contextlib.contextmanager
    def applied(self) -> Iterator[list[torch.Tensor]]:
        """Yields the tensors with their changes, which are in effect while the context is open."""
        before = [tensor[to].clone() for tensor, to, _ in self.changes]
        for tensor, to, source in self.changes:
            tensor[to] = tensor[source].clone()
        try:
            yield self.values.tensors
        finally:
            for (tensor, to, _), value in zip(self.changes, before, strict=True):
                tensor[to] = value


@dataclass
class Uses:
    """Creates the uses of each turn, which are the same for all its sides. The changed element and the random seed are chosen at random, and so
    is the number of lead-in calls in some turns. One counted
    call, at a random position, has a new draw; the others reuse earlier draws. A program that remembers results is slower in that call. Some series
    have a call before which no caches are flushed. A program whose threads read the inputs during the flush is slower in that call; any other is
    faster."""

    draw: Callable[[int], tuple[Values, int]]
    rng: random.Random
    form: Form
    _kept: list[Values] = field(default_factory=list)

    def _warms(self) -> bool:
        return self.form.warms and self.form.counted >= LEAST_COUNTED and self.rng.random() < WARM

    def _more(self) -> int:
        return self.rng.randint(1, self.form.more) if self.form.more and self.rng.random() < LONGER else 0

    def next(self, first: int) -> list[Use]:
        """Returns the uses of one turn, whose first counted call is input number `first`."""
        values, seed = self.draw(first)
        pool = [kept for kept in self._kept if kept.specs == values.specs and kept.tree == values.tree]
        lead = self.form.lead + self._more()
        seeds, calls = random.Random(seed), lead + self.form.counted
        at = self.rng.randrange(lead, calls) if pool else 0
        warm = self.rng.randrange(lead, calls) if self._warms() else -1
        chosen = [values if number == at else self.rng.choice(pool or [values]) for number in range(calls)]
        if calls > 1:
            self._kept = [values, *self._kept][: KEPT_DRAWS if values.nbytes <= KEPT_BYTES else 1]
        return [
            Use(
                one,
                seeds.getrandbits(32) if self.form.seeded else None,
                number >= lead,
                number == at,
                number == warm,
                [change for tensor in one.tensors if (change := self._change(tensor))],
            )
            for number, one in enumerate(chosen)
        ]

    def _change(self, tensor: torch.Tensor) -> tuple[torch.Tensor, tuple[int, ...], tuple[int, ...]] | None:
        """Chooses a change. Integers and booleans are not changed: modified offsets or permutations would no longer be valid inputs of the task."""
        if not tensor.is_floating_point() or tensor.numel() < 2:
            return None
        to, source = (tuple(self.rng.randrange(size) for size in tensor.shape) for _ in range(2))
        return tensor, to, source


def single(draw: Callable[[int], tuple[Values, int]], first: int) -> list[Use]:
    """Returns the use of a one-call turn."""
    values, seed = draw(first)
    return [Use(values, seed, counted=True)]


@dataclass
class Line:
    """Makes a party's calls in series, and manages the locations of the calls' inputs and outputs."""

    party: Party
    expected: list[Spec]
    limit: float
    backward: dict[str, Any] | None = None

    def calls(self, uses: list[Use], before: Callable[[], None], hold: int | None = None, glances: Glances | None = None) -> list[Call]:
        """Makes one call per use, lead-ins included. `before` is called when the party is ready, before the judge writes. The party holds the outputs
        of call number `hold`; `glances` inspects some of the calls. Raises `PartyFailure`."""
        party, device = self.party, self.party.device
        specs = uses[0].values.specs
        size, half = place(specs)[1], place(self.expected)[1]
        keys = [(secrets.randbits(64), secrets.randbits(64)) for _ in uses]
        begins = [number * size for number in range(len(uses))]
        message = {**self._request(uses, specs, begins, size, half), "hold": hold}
        party.arena("in", len(uses) * size)
        out = party.arena("out", len(uses) * half).bytes
        out.fill_(POISON)
        device.sync()

        def hand_over() -> None:
            before()
            leader, flat = device.leader(), party.arenas["in"].bytes
            assert leader is not None
            own = torch.zeros(size, dtype=torch.uint8, device=flat.device)
            places = place(specs)[0]
            for use, key, begin in zip(uses, keys, begins, strict=True):
                with use.applied() as tensors:
                    fill(own, tensors, specs, places)
                leader.mask(own.data_ptr(), size, key)
                flat[begin : begin + size].copy_(own)  # masked before it is shared: a thread of the program may watch the arena
            device.flush_caches()
            device.sync()

        warm = [number for number, use in enumerate(uses) if use.warm]
        stamped, frame, around = party.series(message, keys, self.limit * len(uses), hand_over, glances, warm)
        answers = frame.message.get("calls", [])
        calls = [self._call(number, use, stamped[number], answers[number], message["calls"][number]) for number, use in enumerate(uses)]
        for number in glances.calls if glances is not None else ():
            calls[number].looked = True
        _share(calls, around)
        device.sync()  # the copy above must be complete before the party is asked to write there
        return calls

    def empty(self, count: int) -> list[Stamped]:
        """Runs a series in which nothing is called, to measure the cost of the exchange."""
        party, device = self.party, self.party.device
        party.arena("in", 256), party.arena("out", 256)
        calls = [{"begin": 0, "offsets": [], "rng": None, "room": []}] * count
        message = {"tree": {"l": []}, "specs": [], "expected": [], "arena": "in", "nbytes": 0, "calls": calls, "empty": True}
        return party.series(message, [(1, 2)] * count, self.limit, device.sync)[0]

    def _request(self, uses: list[Use], specs: list[Spec], begins: list[int], size: int, half: int) -> dict[str, Any]:
        calls = [
            {
                "begin": begin,
                "offsets": place(specs, begin)[0],
                "rng": use.rng,
                "room": [
                    {"offset": offset, "nbytes": spec.nbytes}
                    for offset, spec in zip(place(self.expected, number * half)[0], self.expected, strict=True)
                ],
            }
            for number, (use, begin) in enumerate(zip(uses, begins, strict=True))
        ]
        tree = uses[0].values.tree
        return {
            "tree": tree,
            "specs": dump(specs),
            "arena": "in",
            "nbytes": size,
            "expected": dump(self.expected),
            "calls": calls,
            "backward": self.backward,
        }

    def _call(self, number: int, use: Use, stamped: Stamped, answer: Any, request: dict[str, Any]) -> Call:
        party, answer = self.party, answer if isinstance(answer, dict) else {}
        specs = read_specs(answer.get("specs", []))
        room = request["room"]
        fits = (
            bool(answer.get("copied"))
            and len(specs) == len(room)
            and all(spec.nbytes <= where["nbytes"] for spec, where in zip(specs, room, strict=True))
        )
        outputs: list[torch.Tensor] = []
        intact: list[bool] = []
        after: dict[int, torch.Tensor] = {}
        if use.counted:
            if fits and room:
                begin, end = room[0]["offset"], room[-1]["offset"] + room[-1]["nbytes"]
                outputs = views(party.arenas["out"].bytes[begin:end].clone(), specs, [where["offset"] - begin for where in room])
            flat = party.arenas["in"].bytes
            with use.applied() as tensors:
                intact = [
                    same_values(view(flat, spec, offset), tensor)
                    for tensor, spec, offset in zip(tensors, use.values.specs, request["offsets"], strict=True)
                ]
            after = changed(flat, use.values.specs, request["offsets"], intact)
        leader = self.party.device.leader()
        inner = stamped.judged if leader is not None and leader.spins else stamped.own
        return Call(
            inner,
            stamped.judged,
            stamped.copied,
            stamped.ahead,
            answer.get("tree"),
            specs,
            outputs,
            None,
            intact,
            [words for words in answer.get("shared", []) if isinstance(words, str)],
            between=stamped.between,
            in_series=True,
            use=use,
            queued=stamped.queued,
            span=(stamped.began, stamped.ended),
            after=after,
        )


def changed(flat: torch.Tensor, specs: list[Spec], offsets: list[int], intact: list[bool]) -> dict[int, torch.Tensor]:
    """Returns copies of the inputs that a call has changed, by number, unless they take up gigabytes. `flat` is the memory that holds the inputs."""
    rewritten = [number for number, same in enumerate(intact) if not same and not large(specs[number].nbytes)]
    return {number: view(flat, specs[number], offsets[number]).clone() for number in rewritten}


def _share(calls: list[Call], around: int) -> None:
    """Assigns each counted call its share of the series' time outside the counted calls. That time consists of `around` ns before the inputs were
    handed over and after the last call, and of the time by which lead-in calls exceed counted ones. Otherwise, work that a program defers to these
    would be free."""
    counted = [call for call in calls if call.use is not None and call.use.counted]
    usual = statistics.median(call.inner for call in counted)
    lead = sum(call.inner - usual for call in calls if call.use is not None and not call.use.counted)
    for call in counted:
        call.around, call.lead = around // len(counted), int(lead / len(counted))
