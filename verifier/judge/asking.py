"""The judge's side of one party. It sends requests with a time limit, hands over arenas, and determines why the party did not answer."""

from __future__ import annotations

import contextlib
import select
import signal
import statistics
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from verifier.build.artefacts import Artefacts
from verifier.build.wish import STATUS, Wish
from verifier.channel import ChannelClosed, ChannelError, ChannelTimeout, Frame
from verifier.confinement.binding import Binding
from verifier.confinement.layers import layer_failed
from verifier.confinement.queueing import longest_ns, queueing, waits_ns
from verifier.confinement.spawned import Spawned
from verifier.devices.base import GO, REFRESH, REFRESHED, SEEN, Arena, Device
from verifier.judge.gate import Gate
from verifier.judge.party_failure import PartyFailure, death, ends_context, fatal_line, hang_line
from verifier.judge.still import Still
from verifier.limits import Limits
from verifier.parties.permit import Permit
from verifier.shim.clock import SeriesFailed, SharedPage, Stamped

if TYPE_CHECKING:
    from verifier.integrity.sampling.glancing import Glances

FREEZABLE = ("start", "foresee", "role", "load", "import", "capture", "compile", "later")  # long-running requests that do not use the device
LEAST_SECONDS = 0.01  # grace period in seconds for a request whose time has run out
SLICE = 1.0  # interval in seconds at which the frozen time is checked
_NANOSECONDS = struct.Struct("<q")


@dataclass
class Exchange:
    """The time of a call, measured on both sides, in nanoseconds."""

    inner: int  # the interval, measured by the shim
    wall: int  # the interval, measured by the judge
    copied: int  # from the end of the interval until the outputs have been copied
    refreshed: int  # from the arrival of the inputs until the party has refreshed its caches; work done before the interval shows up here
    frame: Frame
    queued: int = 0  # time for which the party's threads waited for a processor during the call
    around: int = 0  # from the request until the party was ready for its inputs


class Party:
    """A confined process that has a role. Requests raise `PartyFailure`. After any kind of failure except "raised", the party is dead."""

    def __init__(self, spawned: Spawned, device: Device, limits: Limits, gate: Gate, permit: Permit | None = None):
        self.spawned = spawned
        self.permit = permit  # permit to use the device; null if it needs none
        self.gate = gate
        self.channel = spawned.channel
        self.device = device
        self.limits = limits
        self.started = False  # whether its interpreter is known to be ready
        self.role = ""
        self.source_name: Literal["task", "program"] = "task"
        self.arenas: dict[str, Arena] = {}
        self.alive = True
        self.lost = False  # whether its device context is lost, in which case the party still answers but can do nothing
        self.has_program = False
        self.wish: Wish | None = None  # a runner's request for a missing build
        self.total: float | None = None  # limit on the total seconds of all the party's requests, set by `give_time`
        self.frozen_before = 0.0  # seconds that are not charged against this total
        self.deadline = float("inf")
        self.born = time.monotonic()
        self.loaded: tuple[str, int] | None = None  # for a baseline: source and seed of its loaded model
        self.still = Still(self)
        self.binding = Binding(spawned, device)
        self.page: SharedPage | None = None  # shared page used to time series of calls
        self.on_device = True  # false for a builder, which has no device
        self.looking: contextlib.AbstractContextManager[object] = (
            contextlib.nullcontext()
        )  # held open while a call runs, because the judge may inspect the process
        self.side = ""  # its part in a measurement, if its role does not imply one: the name of a baseline, or "rival"

    @property
    def whose(self) -> str:
        """Returns the side that is responsible for this party's failures."""
        return self.side or ("program" if self.source_name == "program" else self.role)

    def become(self, role: str, precision: str = "fp32-strict", mode: str = "train") -> None:
        """Waits until the interpreter is ready, then assigns the role."""
        self._start()
        self.role = role
        self.source_name = "task" if role in ("reference", "baseline") else "program"
        self.ask("role", {"role": role, "device": self.device.config(), "precision": precision, "mode": mode}, self.limits.start)

    def foresee(self, source: str) -> None:
        """Waits until the interpreter is ready, then imports the modules that a capture of this task needs. The party has no role yet and uses no
        device."""
        self._start()
        self.ask("foresee", {"source": source}, self.limits.start)

    def _start(self) -> None:
        if self.started:
            return
        ready = self.receive(self.limits.start, 0, "start")
        self.started = True
        if ready.text("landlock_failed"):
            layer_failed("landlock", ready.text("landlock_failed"))

    def settle(self) -> None:
        """Waits until the party is ready for a role. A startup failure is reported when the party is taken from the pool."""
        with contextlib.suppress(ChannelError):
            self._await(self.limits.start)

    def give_time(self, seconds: float) -> None:
        """Limits the total time of all further requests to `seconds`, in addition to the limit of each request."""
        self.total, self.deadline, self.frozen_before = seconds, time.monotonic() + seconds, self.gate.frozen_seconds()

    def _left(self, limit: float) -> float:
        return min(limit, max(self.deadline + self.gate.frozen_seconds() - self.frozen_before - time.monotonic(), LEAST_SECONDS))

    def ask(
        self,
        kind: str,
        message: dict[str, Any] | None = None,
        limit: float | None = None,
        raw: bytes = b"",
        fds: tuple[int, ...] = (),
        max_raw: int = 0,
    ) -> Frame:
        """Sends a request and waits up to `limit` seconds for the answer."""
        self.gate.point()
        self.gate.turns.at(f"{self.whose} {kind}")
        limit = self._left(self.limits.call if limit is None else limit)
        begun = time.monotonic()
        try:
            self.send(kind, message or {}, limit, raw, fds)
            return self.receive(limit, max_raw, kind)
        finally:
            self.gate.turns.answered(f"{self.whose} {kind}", begun)

    def send(self, kind: str, message: dict[str, Any], limit: float, raw: bytes = b"", fds: tuple[int, ...] = ()) -> None:
        self.has_program = self.has_program or kind == "import"
        if not self.alive:
            raise PartyFailure("crashed", "it had ended before", request=kind, whose=self.whose)
        try:
            self.channel.send({**message, "type": kind, "limit": limit}, raw, fds, timeout=max(limit, 10))
        except ChannelError as error:
            raise self.failure(kind, error, limit) from None

    def receive(self, limit: float, max_raw: int, request: str) -> Frame:
        try:
            with self.gate.idle() if request in FREEZABLE else contextlib.nullcontext():
                self._await(limit)
            frame = self.channel.receive(limit, max_raw)
        except ChannelError as error:
            raise self.failure(request, error, limit) from None
        if frame.message.get("type") == "failed":
            line = frame.message.get("line")
            failure = PartyFailure(
                "raised",
                frame.text("message")[:6000],
                line if isinstance(line, int) and not isinstance(line, bool) else None,
                frame.text("traceback")[:6000],
                frame.text("class")[:100],
                request,
                self.whose,
            )
            self.lost = self.lost or ends_context(failure)
            raise failure
        return frame

    def _await(self, limit: float) -> None:
        """Waits up to `limit` seconds for an answer, not counting time during which the party is frozen. Raises `ChannelTimeout`."""
        waiting = select.poll()
        waiting.register(self.channel.fileno(), select.POLLIN)
        begin, frozen = time.monotonic(), self.gate.frozen_seconds()
        while (left := begin + limit + self.gate.frozen_seconds() - frozen - time.monotonic()) > 0:
            if waiting.poll(min(left, SLICE) * 1000 + 1):
                return
        raise ChannelTimeout("no answer in time")

    def rest(self, anew: bool = False) -> None:
        """Prepares the party for timing. Binds it to the processors used for timing, stops its idle compilers and, with `anew`, frees its unused
        memory. Until then, every party runs on the other processors, so many parties can start concurrently."""
        self.binding.spread(False)
        self.ask("rest", {"anew": True} if anew else {})

    def import_program(self, source: str, artefacts: Artefacts, limit: float) -> None:
        """Imports the program as a runner. A missing build is reported as a failure of kind "wanted"."""
        self.wish = Wish()
        message = {"source": source, "artefacts": artefacts.index, "failed": artefacts.failed, "variables": self.device.variables("device")}
        self.ask("import", message, limit, raw=artefacts.data, fds=(self.wish.fd,))

    def timed(self, message: dict[str, Any], limit: float, hand_over: Callable[[], None]) -> Exchange:
        """Makes one timed call. `hand_over` writes its inputs once the party is ready for them."""
        return self._exchange("call", message, limit, hand_over)

    def empty(self, rounds: int) -> int:
        """Returns the median round-trip time without a call, in nanoseconds, as measured by the judge, minus the time that the shim counts."""
        exchanges = [self._exchange("empty", {}, self.limits.call, lambda: None, first=not number) for number in range(rounds)]
        return int(statistics.median(max(exchange.wall - exchange.inner, 0) for exchange in exchanges))

    def series(
        self,
        message: dict[str, Any],
        keys: Sequence[tuple[int, int]],
        limit: float,
        hand_over: Callable[[], None],
        glances: Glances | None = None,
        warm: Sequence[int] = (),
    ) -> tuple[list[Stamped], Frame, int]:
        """Makes one timed call per key, with no message between them, within `limit` seconds. `hand_over` writes the masked inputs of all calls once
        the party is ready. With `glances`, the judge inspects the process during some of the calls. Caches are not flushed before the calls whose
        numbers are in `warm`. Also returns two durations in nanoseconds: the time until the party was ready, and the time from the last call until
        the party's answer. The device must have a `leader`."""
        leader = self.device.leader()
        assert leader is not None
        if self.page is None:
            page = SharedPage()
            self.ask("page", {}, self.limits.call, fds=(page.descriptor,))
            self.page = page
        limit = self._left(limit)
        self.device.settle()
        leader.begin(self.page.address)
        asked = time.monotonic_ns()
        if self.ask("series", message, limit).message.get("type") != "ready":
            raise self.failure("series", ChannelError("an answer out of turn"), limit)
        around = time.monotonic_ns() - asked
        hand_over()
        try:
            with queueing(self.spawned) as threads, self.looking, glances.over(self.page) if glances else contextlib.nullcontext(-1) as bell:
                stamped = leader.lead(self.page.address, self.channel.fileno(), keys, limit, threads, bell, glances.calls if glances else (), warm)
                ended = time.monotonic_ns()
        except SeriesFailed as failed:
            if failed.cause == "time":
                raise self.failure("series", ChannelTimeout("no answer in time"), limit) from None
            if failed.cause == "message":
                self.receive(limit, 0, "series")  # raises an exception if the party reports or shows a failure
            raise self.failure("series", ChannelError("an answer out of turn"), limit) from None
        frame = self.receive(limit, 0, "series")
        return stamped, frame, around + time.monotonic_ns() - ended

    def _exchange(self, kind: str, message: dict[str, Any], limit: float, hand_over: Callable[[], None], first: bool = True) -> Exchange:
        """Makes one exchange. `first` means that another party may have just used the device."""
        with queueing(self.spawned) as threads:
            return self._exchanged(kind, message, limit, hand_over, first, threads)

    def _exchanged(
        self, kind: str, message: dict[str, Any], limit: float, hand_over: Callable[[], None], first: bool, threads: list[int]
    ) -> Exchange:
        limit = self._left(limit)
        if first:
            self.device.settle()
        asked = time.monotonic_ns()
        if self.ask(kind, message, limit).message.get("type") != "ready":
            raise self.failure(kind, ChannelError("an answer out of turn"), limit)
        around = time.monotonic_ns() - asked
        hand_over()
        sock = self.channel.sock
        try:
            handed = time.monotonic_ns()
            sock.sendall(REFRESH)
            answer = self._next(1, limit)
            waits = waits_ns(threads)
            begin = time.monotonic_ns()
            if answer == REFRESHED:
                with self.looking:
                    sock.sendall(GO)
                    answer = self._next(_NANOSECONDS.size, limit)
                    end = time.monotonic_ns()
                    waited = longest_ns(waits, waits_ns(threads))
                while answer and len(answer) < _NANOSECONDS.size:
                    answer += self._next(_NANOSECONDS.size - len(answer), limit) or b"\0" * 8
                if self.device.says_seen:
                    sock.sendall(SEEN)
                seen = time.monotonic_ns()
            elif answer:
                raise self.failure(kind, ChannelError("an answer out of turn"), limit)
        except (TimeoutError, ChannelTimeout):
            raise self.failure(kind, ChannelTimeout("no answer in time"), limit) from None
        except OSError as error:
            raise self.failure(kind, ChannelClosed(str(error)), limit) from None
        if not answer:
            raise self.failure(kind, ChannelClosed("the peer closed the connection"), limit)
        frame = self.receive(limit, 0, kind)
        return Exchange(_NANOSECONDS.unpack(answer[:8])[0], end - begin, time.monotonic_ns() - seen, begin - handed, frame, waited, around)

    def _next(self, count: int, limit: float) -> bytes:
        """Reads the bytes of a timed exchange. If there are enough processors, it polls first, because waking this process would lengthen only the
        judge's time."""
        sock = self.channel.sock
        end = time.monotonic() + self.device.polling_seconds
        sock.settimeout(0)
        while time.monotonic() < end:
            try:
                return sock.recv(count)
            except BlockingIOError:
                pass
        self._await(limit)
        sock.settimeout(limit)
        return sock.recv(count)

    def arena(self, name: str, nbytes: int) -> Arena:
        """Returns an arena of at least `nbytes` that the party has mapped under `name`."""
        arena = self.arenas.get(name)
        if arena is not None and arena.nbytes >= nbytes:
            return arena
        if arena is not None and self.role == "reference":
            self.drop(name)  # a program may hold views of its inputs, so its arenas stay mapped
            arena = None
        fresh = self.device.allocate(nbytes)
        try:
            self.ask("attach", {"arena": name, "handle": fresh.handle}, self.limits.call, fds=fresh.fds)
        except PartyFailure:
            fresh.close()
            raise
        if arena is not None:
            arena.close()
        self.arenas[name] = fresh
        return fresh

    def drop(self, name: str) -> None:
        """Frees a reference's arena on both sides."""
        arena = self.arenas.get(name)
        if arena is not None:
            self.device.sync()
            self.ask("detach", {"arena": name}, self.limits.call)  # if this fails, the arena is closed when the party ends
            del self.arenas[name]
            arena.close()

    def failure(self, request: str, error: ChannelError, limit: float) -> PartyFailure:
        """Terminates the party and explains why it did not answer."""
        spawned = self.spawned
        memory = spawned.group is not None and spawned.group.out_of_memory()
        status = spawned.exit_status(1.0) if isinstance(error, ChannelClosed) else None
        flooded = spawned.flooded
        wish = self.wish.read() if self.wish is not None and status == STATUS else None
        self.end()
        printed = spawned.text()
        line = hang_line(printed, self.source_name)
        why = partial(PartyFailure, request=request, whose=self.whose)
        if wish is not None:
            line = wish["line"] if type(wish.get("line")) is int else None
            return why("wanted", "it requests a build that it did not request when it was imported", line, wish=wish)
        if flooded:
            return why("flood", f"it printed more than {spawned.limits.output_flood >> 20} MiB")
        if spawned.over == "processes":
            return why("memory", f"it started more than {spawned.limits.processes} processes", line)
        if memory or spawned.over or (spawned.group is None and status in (-signal.SIGKILL, 137)):
            return why("memory", f"it used more than {spawned.limits.memory / (1 << 30):.1f} GiB of memory", line)
        if isinstance(error, ChannelTimeout) and self._left(limit) <= LEAST_SECONDS:
            return why("timed_out", f"all its calls together took more than {self.total:g} s", line)
        if isinstance(error, ChannelTimeout):
            return why("timed_out", f"it did not finish within {limit:g} s", line)
        if isinstance(error, ChannelClosed):
            return why("crashed", death(status), fatal_line(printed, self.source_name), printed[-2000:])
        return why("protocol", f"it broke the protocol: {error}")

    def end(self) -> None:
        self.alive = False
        self.spawned.end()
        if self.permit is not None:
            self.permit.close()
        if self.page is not None:
            self.page.close()
        for arena in self.arenas.values():
            arena.close()
        self.arenas = {}
        if self.wish is not None:
            self.wish.close()
