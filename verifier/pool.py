"""The judge's side of the parties: ask one for something, learn why it failed, and keep fresh ones waiting."""

from __future__ import annotations

import contextlib
import re
import select
import signal
import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from verifier.channel import ChannelClosed, ChannelError, ChannelTimeout, Frame
from verifier.devices.base import GO, REFRESH, REFRESHED, Arena, Bind, Device
from verifier.gate import Gate
from verifier.limits import Limits
from verifier.sandbox import Spawned, hang_line, layer_failed, spawn

_SIGNALS = {
    "SIGABRT": "abort",
    "SIGBUS": "bus error",
    "SIGFPE": "arithmetic fault",
    "SIGILL": "illegal instruction",
    "SIGSEGV": "segmentation fault",
}
Role = Literal["reference", "baseline", "runner", "observer", "builder"]
Result = TypeVar("Result")
FREEZABLE = ("start", "role", "load", "import", "capture")  # requests that take long without the device
LEAST_SECONDS = 0.01  # that a request may take when its time is up
SLICE = 1.0  # seconds between two looks at how long a party stood still
_NANOSECONDS = struct.Struct("<q")


@dataclass
class PartyFailure(Exception):
    """Why a party did not answer: its source raised, it died, it hung, or it broke the protocol. `message` is for people."""

    kind: Literal["raised", "crashed", "timed_out", "memory", "flood", "protocol"]
    message: str
    line: int | None = None
    detail: str = ""  # traceback, last output
    error_class: str = ""
    request: str = ""  # what it was asked for


class Cancelled(Exception):
    """The client took the job back."""


@dataclass
class Exchange:
    """A timed call as both sides saw it. Nanoseconds."""

    inner: int  # the interval, by the shim
    wall: int  # the interval, by the judge
    copied: int  # from its end until the outputs were copied
    refreshed: int  # from the inputs' arrival until the party had refreshed its caches: work ahead of the interval shows here
    frame: Frame


class Party:
    """A confined process with a role. Requests raise `PartyFailure`; after anything but "raised" the party is dead."""

    def __init__(self, spawned: Spawned, device: Device, limits: Limits, gate: Gate):
        self.spawned = spawned
        self.gate = gate
        self.channel = spawned.channel
        self.device = device
        self.limits = limits
        self.role = ""
        self.source_name: Literal["task", "program"] = "task"
        self.arenas: dict[str, Arena] = {}
        self.alive = True
        self.has_program = False
        self.total: float | None = None  # seconds that all its requests together may take, once `give_time` was called
        self.frozen_before = 0.0  # seconds that do not count for them
        self.deadline = float("inf")
        self.born = time.monotonic()
        self.loaded: tuple[str, int] | None = None  # of a baseline: source and seed of the model that it holds

    def become(self, role: str, precision: str = "fp32-strict", mode: str = "train") -> None:
        """Waits until the interpreter is ready, then hands over the role."""
        ready = self.receive(self.limits.start, 0, "start")
        if ready.text("landlock_failed"):
            layer_failed("landlock", ready.text("landlock_failed"))
        self.role = role
        self.source_name = "task" if role in ("reference", "baseline") else "program"
        self.ask("role", {"role": role, "device": self.device.config(), "precision": precision, "mode": mode}, self.limits.start)

    def give_time(self, seconds: float) -> None:
        """From now on all requests together take at most `seconds`, whatever each of them may take."""
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
        limit = self._left(self.limits.call if limit is None else limit)
        self.send(kind, message or {}, limit, raw, fds)
        return self.receive(limit, max_raw, kind)

    def send(self, kind: str, message: dict[str, Any], limit: float, raw: bytes = b"", fds: tuple[int, ...] = ()) -> None:
        self.has_program = self.has_program or kind == "import"
        if not self.alive:
            raise PartyFailure("crashed", "it had ended before", request=kind)
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
            )
        return frame

    def _await(self, limit: float) -> None:
        """Until it says something, at most `limit` seconds without those in which it stood still. Raises `ChannelTimeout`."""
        waiting = select.poll()
        waiting.register(self.channel.fileno(), select.POLLIN)
        begin, frozen = time.monotonic(), self.gate.frozen_seconds()
        while (left := begin + limit + self.gate.frozen_seconds() - frozen - time.monotonic()) > 0:
            if waiting.poll(min(left, SLICE) * 1000 + 1):
                return
        raise ChannelTimeout("no answer in time")

    def timed(self, message: dict[str, Any], limit: float, hand_over: Callable[[], None]) -> Exchange:
        """A timed call. `hand_over` writes its inputs, once the party is ready for them."""
        return self._exchange("call", message, limit, hand_over)

    def empty(self) -> int:
        """Nanoseconds of a round trip without a call, as the judge sees it, less what the shim counts."""
        exchange = self._exchange("empty", {}, self.limits.call, lambda: None)
        return max(exchange.wall - exchange.inner, 0)

    def _exchange(self, kind: str, message: dict[str, Any], limit: float, hand_over: Callable[[], None]) -> Exchange:
        limit = self._left(limit)
        self.device.settle()
        if self.ask(kind, message, limit).message.get("type") != "ready":
            raise self.failure(kind, ChannelError("an answer out of turn"), limit)
        hand_over()
        sock = self.channel.sock
        try:
            handed = time.monotonic_ns()
            sock.sendall(REFRESH)
            answer = self._next(1, limit)
            begin = time.monotonic_ns()
            if answer == REFRESHED:
                sock.sendall(GO)
                answer = self._next(_NANOSECONDS.size, limit)
                end = time.monotonic_ns()
                while answer and len(answer) < _NANOSECONDS.size:
                    answer += self._next(_NANOSECONDS.size - len(answer), limit) or b"\0" * 8
            elif answer:
                raise self.failure(kind, ChannelError("an answer out of turn"), limit)
        except (TimeoutError, ChannelTimeout):
            raise self.failure(kind, ChannelTimeout("no answer in time"), limit) from None
        except OSError as error:
            raise self.failure(kind, ChannelClosed(str(error)), limit) from None
        if not answer:
            raise self.failure(kind, ChannelClosed("the peer closed the connection"), limit)
        frame = self.receive(limit, 0, kind)
        return Exchange(_NANOSECONDS.unpack(answer[:8])[0], end - begin, time.monotonic_ns() - end, begin - handed, frame)

    def _next(self, count: int, limit: float) -> bytes:
        """Bytes of a timed exchange. Where there are processors enough, it polls first: waking this process would be in the judge's time alone."""
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
        """An arena of at least `nbytes` that the party has mapped under `name`."""
        arena = self.arenas.get(name)
        if arena is not None and arena.nbytes >= nbytes:
            return arena
        if arena is not None and self.role == "reference":
            self.drop(name)  # a program may hold views of its inputs, so its arenas stay mapped
            arena = None
        fresh = self.device.allocate(nbytes)
        self.ask("attach", {"arena": name, "handle": fresh.handle}, self.limits.call, fds=fresh.fds)
        if arena is not None:
            arena.close()
        self.arenas[name] = fresh
        return fresh

    def drop(self, name: str) -> None:
        """Frees an arena of a reference, on both sides."""
        arena = self.arenas.pop(name, None)
        if arena is not None:
            self.device.sync()
            self.ask("detach", {"arena": name}, self.limits.call)
            arena.close()

    def failure(self, request: str, error: ChannelError, limit: float) -> PartyFailure:
        """Ends the party and says why it did not answer."""
        spawned = self.spawned
        memory = spawned.group is not None and spawned.group.out_of_memory()
        status = spawned.exit_status(1.0) if isinstance(error, ChannelClosed) else None
        flooded = spawned.flooded
        self.end()
        printed = spawned.text()
        line = hang_line(printed, self.source_name)
        if flooded:
            return PartyFailure("flood", f"it printed more than {spawned.limits.output_flood >> 20} MiB", None, "", "", request)
        if spawned.over == "processes":
            return PartyFailure("memory", f"it started more than {spawned.limits.processes} processes", line, "", "", request)
        if memory or spawned.over or (spawned.group is None and status in (-signal.SIGKILL, 137)):
            return PartyFailure("memory", f"it used more than {spawned.limits.memory / (1 << 30):.1f} GiB of memory", line, "", "", request)
        if isinstance(error, ChannelTimeout) and self._left(limit) <= LEAST_SECONDS:
            return PartyFailure("timed_out", f"all its calls together took more than {self.total:g} s", line, "", "", request)
        if isinstance(error, ChannelTimeout):
            return PartyFailure("timed_out", f"it did not finish within {limit:g} s", line, "", "", request)
        if isinstance(error, ChannelClosed):
            return PartyFailure("crashed", _death(status), _fatal_line(printed, self.source_name), printed[-2000:], "", request)
        return PartyFailure("protocol", f"it broke the protocol: {error}", None, "", "", request)

    def end(self) -> None:
        self.alive = False
        self.spawned.end()
        for arena in self.arenas.values():
            arena.close()
        self.arenas = {}


def _death(status: int | None) -> str:
    if status is None:
        return "it closed its channel"
    number = -status if status < 0 else status - 128 if status > 128 else 0
    if number:
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = f"signal {number}"
        words = {
            "SIGSEGV": "segmentation fault",
            "SIGFPE": "arithmetic fault",
            "SIGILL": "illegal instruction",
            "SIGABRT": "abort",
            "SIGBUS": "bus error",
        }
        return f"it was ended by {name}" + (f" ({words[name]})" if name in words else "")
    return f"it exited with status {status} before it answered"


def _fatal_line(printed: str, source: str) -> int | None:
    at = printed.rfind("Fatal Python error")
    found = re.findall(rf'File "[^"]*/{source}\.py", line (\d+)', printed[at:]) if at >= 0 else []
    return int(found[0]) if found else None


class Coming:
    """A party that takes its role in a thread of its own, for whoever will soon want one."""

    def __init__(self, party: Party, terms: tuple[Role, str, str]):
        self.party = party
        self.terms = terms
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._become, daemon=True)
        self._thread.start()
        self._more: threading.Thread | None = None

    def _become(self) -> None:
        try:
            self.party.become(*self.terms)
        except BaseException as failure:
            self._failure = failure

    def then(self, work: Callable[[Party], None]) -> None:
        """What fails in `work` is left to whoever asks for the same again."""

        def more() -> None:
            self._thread.join()
            if self._failure is None:
                with contextlib.suppress(PartyFailure):
                    work(self.party)

        self._more = threading.Thread(target=more, daemon=True)
        self._more.start()

    def arrive(self) -> None:
        """Waits. Raises `PartyFailure`."""
        self._thread.join()
        if self._more is not None:
            self._more.join()
        if self._failure is not None:
            raise self._failure


class Pool:
    """Fresh parties that have imported torch and wait for a role; every one is used once. Spawns from one thread: a party dies with it."""

    def __init__(self, device: Device, limits: Limits, spares: int = 2, builder_binds: list[Bind] | None = None):
        self.device = device
        self.limits = limits
        self.gate = Gate(device.place)
        self.spares = spares
        self.builder_binds = builder_binds or []  # what builders see beyond the rest
        self.waiting: list[Party] = []
        self.builders: list[Party] = []  # one waits where spares do: it is confined otherwise
        self.busy: list[Party] = []
        self.coming: list[Coming] = []
        self.ending: list[Party] = []  # killed, and not yet waited for
        self.lock = threading.Lock()
        self.cancelled = False
        self.extensions = True  # whether parties that see the device import what loads extensions before they are asked to

    def spawn(
        self,
        role: str = "device",
        prefix: list[str] | None = None,
        writable: list[Bind] | None = None,
        binds: list[Bind] | None = None,
        bare: bool = False,
        soon: str = "",
    ) -> Party:
        """`role` is "builder" (never sees the device) or "device"; `prefix`, `writable` and further `binds` are for profilers. `soon`: the role that
        it gets at once, so that its device may come up while it imports torch; a spare holds nothing of the device."""
        self.gate.point()
        device = self.device
        shown = [*device.binds(role), *(self.builder_binds if role == "builder" else []), *(binds or [])]
        early = device.early(soon) if soon and not bare else None
        spawned = spawn(
            self.limits,
            shown,
            device.variables(role),
            device.kind == "cpu" and prefix is None,
            prefix,
            writable,
            bare,
            role == "builder" or self.extensions,
            early,
        )
        return Party(spawned, device, self.limits, self.gate)

    def start(self, role: Literal["builder", "compiler"]) -> Party:
        """A party that is still starting: whoever uses it, in whichever thread, first lets it `become` its role. A compiler has no torch."""
        if self.cancelled:
            raise Cancelled
        spare = next((party for party in self.builders if party.spawned.process.poll() is None), None) if role == "builder" else None
        if spare is not None:
            self.builders.remove(spare)
        party = spare or self.spawn("builder", bare=role == "compiler")
        with self.lock:
            self.busy.append(party)
        return party

    def take(self, role: str, precision: str = "fp32-strict", mode: str = "train") -> Party:
        """A party in its role: "reference", "baseline", "runner" or "builder"."""
        if self.cancelled:
            raise Cancelled
        coming = self._claim((role, precision, mode))
        if coming is not None:
            try:
                with self.gate.idle():
                    coming.arrive()
                return coming.party
            except PartyFailure:
                self.give_back(coming.party)
                if self.cancelled:
                    raise
        spares = self.builders if role == "builder" else self.waiting
        spare = spares.pop(0) if spares else None
        party = spare or self.spawn("builder" if role == "builder" else "device", soon=role)
        with self.lock:
            self.busy.append(party)
        try:
            party.become(role, precision, mode)
        except PartyFailure:
            self.give_back(party)
            if spare is None or self.cancelled:
                raise
            return self.take(role, precision, mode)  # a spare may have died while it waited
        return party

    def take_all(self, wanted: list[tuple[Role, str, str]]) -> list[Party]:
        """Parties for (role, precision, mode), all started before any is waited for. On a failure none stays."""
        if self.cancelled:
            raise Cancelled
        started: list[Party] = []
        waits: list[Callable[[], None]] = []
        for terms in wanted:
            coming = self._claim(terms)
            party = coming.party if coming is not None else self._fresh(terms[0])
            started.append(party)
            waits.append(coming.arrive if coming is not None else partial(party.become, *terms))
        try:
            self.at_once(waits)
        except BaseException:
            for party in started:
                self.give_back(party)
            raise
        return started

    def anticipate(self, wanted: list[tuple[Role, str, str]]) -> None:
        """Lets parties that will soon be taken begin to take their roles (on a GPU a context costs half a second), while the caller goes on."""
        if not self.cancelled:
            self.coming += [Coming(self._fresh(terms[0]), terms) for terms in wanted]

    def expects(self, terms: tuple[str, str, str]) -> bool:
        return any(one.terms == terms for one in self.coming)

    def ahead(self, terms: tuple[Role, str, str], then: Callable[[Party], None]) -> None:
        """Lets one that is coming do more, in its thread, as soon as it has its role."""
        for one in self.coming:
            if one.terms == terms:
                one.then(then)
                return

    def forget(self) -> None:
        """Ends those that nobody took."""
        coming, self.coming = self.coming, []
        for one in coming:
            self.give_back(one.party)

    def _claim(self, terms: tuple[str, str, str]) -> Coming | None:
        while (found := next((one for one in self.coming if one.terms == terms), None)) is not None:
            self.coming.remove(found)
            if found.party.spawned.process.poll() is None:
                return found
            self.give_back(found.party)  # it died while it waited
        return None

    def _fresh(self, role: str) -> Party:
        party = self.waiting.pop(0) if self.waiting else self.spawn(soon=role)
        with self.lock:
            self.busy.append(party)
        return party

    def at_once(self, work: list[Callable[[], Result]]) -> list[Result]:
        """Waits for several parties in threads of their own. The first exception is raised, when all have ended."""
        if len(work) < 2:
            return [one() for one in work]

        def working(one: Callable[[], Result]) -> Result:
            with self.gate.working():
                return one()

        with self.gate.idle(), ThreadPoolExecutor(len(work), initializer=self.device.adopt_thread) as threads:
            return [future.result() for future in [threads.submit(working, one) for one in work]]

    def give_back(self, party: Party) -> None:
        """Ends a party: none is used twice."""
        party.end()
        with self.lock:
            if party in self.busy:
                self.busy.remove(party)

    def dismiss(self, party: Party) -> None:
        """Kills a party, without waiting until it is gone: `reap` does."""
        party.alive = False
        if not party.spawned.ended:
            party.spawned.kill()
            self.ending.append(party)
        with self.lock:
            if party in self.busy:
                self.busy.remove(party)

    def reap(self) -> None:
        """Waits for dismissed parties, before something is measured or the device is looked at."""
        ending, self.ending = self.ending, []
        for party in ending:
            party.end()

    def alive(self) -> list[Spawned]:
        """Every party's processes, from whichever thread."""
        with self.lock:
            busy = list(self.busy)
        return [party.spawned for party in [*self.waiting, *self.builders, *busy] if not party.spawned.ended]

    def refill(self) -> None:
        """Called when nothing is measured."""
        self.waiting = [party for party in self.waiting if party.spawned.process.poll() is None]
        self.builders = [party for party in self.builders if party.spawned.process.poll() is None]
        while len(self.waiting) < self.spares:
            self.waiting.append(self.spawn())
        if self.spares and not self.builders:
            self.builders.append(self.spawn("builder"))

    def cancel(self) -> None:
        """From another thread: kills the parties at work, so that whoever waits for them gets an error at once."""
        self.cancelled = True
        with self.lock:
            for party in self.busy:
                party.spawned.kill()

    def close(self) -> None:
        """Kills all at once, then waits for each: the driver takes its time with every process that held a context."""
        parties = [*self.waiting, *self.builders, *self.busy, *self.ending]
        if parties:
            with ThreadPoolExecutor(len(parties)) as threads:
                list(threads.map(lambda party: party.spawned.kill(), parties))
                list(threads.map(lambda party: party.spawned.end(), parties))
        for party in parties:
            party.end()
        self.waiting, self.builders, self.busy, self.coming, self.ending = [], [], [], [], []


def data_folder(data_dir: Path, name: str) -> Path:
    """A folder of the judge's own below `data_dir`, closed to other users."""
    folder = data_dir / name
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder
