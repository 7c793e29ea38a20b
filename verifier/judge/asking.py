"""The judge's side of one party: sends requests with a time limit, hands over arenas, and finds out why the party did not answer."""

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
from verifier.confinement.queueing import queueing, waited_ns
from verifier.confinement.spawned import Spawned
from verifier.devices.base import GO, REFRESH, REFRESHED, SEEN, Arena, Device
from verifier.judge.gate import Gate
from verifier.judge.party_failure import PartyFailure, death, fatal_line, hang_line
from verifier.judge.still import Still
from verifier.limits import Limits
from verifier.parties.permit import Permit
from verifier.shim.clock import SeriesFailed, SharedPage, Stamped

if TYPE_CHECKING:
    from verifier.integrity.sampling.glancing import Glances

FREEZABLE = ("start", "role", "load", "import", "capture", "compile", "later")  # requests that take long without the device
LEAST_SECONDS = 0.01  # grace in seconds for a request whose time is up
SLICE = 1.0  # seconds between two checks of how long a party was frozen
_NANOSECONDS = struct.Struct("<q")


@dataclass
class Exchange:
    """A timed call as both sides saw it, in nanoseconds."""

    inner: int  # the interval, by the shim
    wall: int  # the interval, by the judge
    copied: int  # from its end until the outputs were copied
    refreshed: int  # from the inputs' arrival until the party had refreshed its caches; work done ahead of the interval shows here
    frame: Frame
    queued: int = 0  # how long the party's threads waited for a processor meanwhile
    around: int = 0  # from the request until the party was ready for its inputs


class Party:
    """A confined process with a role. Requests raise `PartyFailure`; after anything but "raised" the party is dead."""

    def __init__(self, spawned: Spawned, device: Device, limits: Limits, gate: Gate, permit: Permit | None = None):
        self.spawned = spawned
        self.permit = permit  # permit to use the device; null where it needs none
        self.gate = gate
        self.channel = spawned.channel
        self.device = device
        self.limits = limits
        self.role = ""
        self.source_name: Literal["task", "program"] = "task"
        self.arenas: dict[str, Arena] = {}
        self.alive = True
        self.has_program = False
        self.wish: Wish | None = None  # note by which a runner requests a missing build
        self.total: float | None = None  # seconds that all its requests together may take, set by `give_time`
        self.frozen_before = 0.0  # seconds that do not count
        self.deadline = float("inf")
        self.born = time.monotonic()
        self.loaded: tuple[str, int] | None = None  # for a baseline: source and seed of its model
        self.still = Still(self)
        self.binding = Binding(spawned, device)
        self.page: SharedPage | None = None  # shared page in which series of calls are timed
        self.on_device = True  # without a device it is a builder
        self.looking: contextlib.AbstractContextManager[object] = (
            contextlib.nullcontext()
        )  # open while a call runs: the judge may inspect the process
        self.side = ""  # its part in a measurement, where its role does not say it: the name of a baseline, or "rival"

    @property
    def whose(self) -> str:
        """Returns whose failures its failures are."""
        return self.side or ("program" if self.source_name == "program" else self.role)

    def become(self, role: str, precision: str = "fp32-strict", mode: str = "train") -> None:
        """Waits until the interpreter is ready, then hands over the role."""
        ready = self.receive(self.limits.start, 0, "start")
        if ready.text("landlock_failed"):
            layer_failed("landlock", ready.text("landlock_failed"))
        self.role = role
        self.source_name = "task" if role in ("reference", "baseline") else "program"
        self.ask("role", {"role": role, "device": self.device.config(), "precision": precision, "mode": mode}, self.limits.start)

    def settle(self) -> None:
        """Waits until it is ready for a role. A failure shows when it is taken."""
        with contextlib.suppress(ChannelError):
            self._await(self.limits.start)

    def give_time(self, seconds: float) -> None:
        """Limits all further requests together to `seconds`, whatever each of them may take."""
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
        """Sends a request and waits for its answer at most `limit` seconds."""
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
            raise PartyFailure(
                "raised",
                frame.text("message")[:6000],
                line if isinstance(line, int) and not isinstance(line, bool) else None,
                frame.text("traceback")[:6000],
                frame.text("class")[:100],
                request,
                self.whose,
            )
        return frame

    def _await(self, limit: float) -> None:
        """Waits until it answers, for at most `limit` seconds, not counting those in which it was frozen. Raises `ChannelTimeout`."""
        waiting = select.poll()
        waiting.register(self.channel.fileno(), select.POLLIN)
        begin, frozen = time.monotonic(), self.gate.frozen_seconds()
        while (left := begin + limit + self.gate.frozen_seconds() - frozen - time.monotonic()) > 0:
            if waiting.poll(min(left, SLICE) * 1000 + 1):
                return
        raise ChannelTimeout("no answer in time")

    def rest(self, anew: bool = False) -> None:
        """Prepares it for timing: binds it to the processors on which sides are timed, ends idle compilers and, where it begins `anew`, frees unused
        memory. Until then every party runs on the device's other processors, so that many can start at once."""
        self.binding.spread(False)
        self.ask("rest", {"anew": True} if anew else {})

    def import_program(self, source: str, artefacts: Artefacts, limit: float) -> None:
        """Imports the program as a runner. A missing build shows as a failure of the kind "wanted"."""
        self.wish = Wish()
        message = {"source": source, "artefacts": artefacts.index, "failed": artefacts.failed, "variables": self.device.variables("device")}
        self.ask("import", message, limit, raw=artefacts.data, fds=(self.wish.fd,))

    def timed(self, message: dict[str, Any], limit: float, hand_over: Callable[[], None]) -> Exchange:
        """Makes a timed call. `hand_over` writes its inputs once the party is ready for them."""
        return self._exchange("call", message, limit, hand_over)

    def empty(self, rounds: int) -> int:
        """Returns the median of round trips without a call in nanoseconds, as the judge sees them, less what the shim counts."""
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
        """Makes one timed call per key, without a message between them, within `limit` seconds. `hand_over` writes the masked inputs of all of them
        once the party is ready. With `glances` the judge inspects the process in some of the calls; caches are not flushed before those
        numbered `warm`. Returns also the nanoseconds that the party
        needed until it was ready, and from the last call until its answer. The device must have a `leader`."""
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
                self.receive(limit, 0, "series")  # raises where the party says or shows what went wrong
            raise self.failure("series", ChannelError("an answer out of turn"), limit) from None
        frame = self.receive(limit, 0, "series")
        return stamped, frame, around + time.monotonic_ns() - ended

    def _exchange(self, kind: str, message: dict[str, Any], limit: float, hand_over: Callable[[], None], first: bool = True) -> Exchange:
        """Makes one exchange. `first`: another party may have used the device just now."""
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
            waited = waited_ns(threads)
            begin = time.monotonic_ns()
            if answer == REFRESHED:
                with self.looking:
                    sock.sendall(GO)
                    answer = self._next(_NANOSECONDS.size, limit)
                    end = time.monotonic_ns()
                    waited = waited_ns(threads) - waited
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
        """Reads bytes of a timed exchange. With enough processors it polls first: waking this process would count only in the judge's time."""
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
        """Frees an arena of a reference, on both sides."""
        arena = self.arenas.get(name)
        if arena is not None:
            self.device.sync()
            self.ask("detach", {"arena": name}, self.limits.call)  # if this fails, the party's end closes the arena
            del self.arenas[name]
            arena.close()

    def failure(self, request: str, error: ChannelError, limit: float) -> PartyFailure:
        """Ends the party and says why it did not answer."""
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
