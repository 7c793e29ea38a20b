"""The judge's pool of parties. Fresh parties are kept ready, take their roles before they are needed, and are terminated after use."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

from verifier.confinement.sandbox import PartySpec, spawn
from verifier.confinement.spawned import Spawned
from verifier.devices.base import Bind, Device
from verifier.judge.asking import Party
from verifier.judge.gate import Freezable, Gate
from verifier.judge.party_failure import PartyFailure
from verifier.limits import Limits
from verifier.parties.permit import Permit

Role = Literal["reference", "baseline", "runner", "builder"]
Result = TypeVar("Result")


class Cancelled(Exception):
    """Raised when the client has withdrawn the job."""


class Coming:
    """A party that takes its role in a separate thread, for a caller that will soon need it. With `first`, it does that work before."""

    def __init__(self, party: Party, terms: tuple[Role, str, str], first: Callable[[], None] | None = None):
        self.party = party
        self.terms = terms
        self._first = first
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._become, daemon=True)
        self._thread.start()
        self._more: threading.Thread | None = None

    def _become(self) -> None:
        try:
            if self._first is not None:
                self._first()
            self.party.become(*self.terms)
        except BaseException as failure:
            self._failure = failure

    def then(self, work: Callable[[Party], None]) -> None:
        """Queues more work. A failure in `work` is reported when the same work is requested again."""

        def more() -> None:
            self._thread.join()
            if self._failure is None:
                with contextlib.suppress(PartyFailure):
                    work(self.party)

        self._more = threading.Thread(target=more, daemon=True)
        self._more.start()

    def arrive(self) -> None:
        """Waits for the party. Raises `PartyFailure`."""
        self._thread.join()
        if self._more is not None:
            self._more.join()
        if self._failure is not None:
            raise self._failure


class Importing:
    """A party without a role that imports, in a separate thread, what a capture needs (`Party.foresee`), once the work of `after` is done."""

    def __init__(self, party: Party, source: str = "", after: Importing | None = None):
        self.party = party
        self._source = source
        self._after = after
        self._failure: PartyFailure | None = None
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            if self._after is not None:
                self._after.arrive()
            self.party.foresee(self._source)
        except PartyFailure as failure:
            self._failure = failure

    def settle(self) -> None:
        """Waits until the thread has ended. A failure is reported when the party is needed."""
        self._thread.join()

    def arrive(self) -> None:
        """Waits until everything is imported. Raises `PartyFailure`."""
        self._thread.join()
        if self._failure is not None:
            raise self._failure


class Pool:
    """Fresh parties that have imported torch and are waiting for a role; each is used once. They are all spawned from one thread, because a party
    dies with the thread that spawned it."""

    def __init__(self, device: Device, limits: Limits, spares: int = 2, builder_binds: list[Bind] | None = None):
        self.device = device
        self.limits = limits
        self.gate = Gate(device.place)
        self.spares = spares
        self.builder_binds = builder_binds or []  # additional paths visible to builders
        self.waiting: list[Party] = []
        self.builders: list[Party] = []  # one builder is kept ready with the spares, under its own confinement
        # One party that has imported the exporter is kept ready for a capture, on a device whose host has processors to spare for that.
        self.exporter: Importing | None = None
        self.busy: list[Party] = []
        self.coming: list[Coming] = []
        self.ending: list[Party] = []  # killed but not yet reaped
        self.lock = threading.Lock()
        self.cancelled = False
        # With STITCH_STILL=device, only processes that work on the device are frozen while another judge measures (`still.py`). On processors not
        # used for timing, parties continue to import torch, builders to build, and torch.compile to compile.
        self.host_goes_on = os.environ.get("STITCH_STILL") == "device" and bool(device.stands_on)
        self.extensions = True  # whether parties import in advance the modules that build and load extensions

    def spawn(
        self,
        role: str = "device",
        *,
        prefix: Sequence[str] = (),
        writable: Sequence[Bind] = (),
        binds: Sequence[Bind] = (),
        bare: bool = False,
        soon: str = "",
    ) -> Party:
        """Spawns a party. `role` is "builder" (never sees the device) or "device". `prefix`, `writable` and the additional `binds` are for profilers.
        `soon` is the role that the party gets immediately, which allows its device to be initialised while it imports torch. A spare party holds no
        device memory. If the host's work continues while others measure, the party needs a device permit instead and can start at any time."""
        device = self.device
        permit = Permit.made() if self.host_goes_on and role == "device" and not prefix else None
        if permit is None:
            self.gate.point()
        spec = PartySpec(
            self.limits.of_builder() if role == "builder" else self.limits,
            binds=[*device.binds(role), *(self.builder_binds if role == "builder" else []), *binds],
            writable=writable,
            variables=device.variables(role),
            data_limit=device.kind == "cpu" and not prefix,
            prefix=prefix,
            bare=bare,
            extensions=self.extensions,
            early=permit is None and bool(soon) and not bare and device.early(soon),
            placed=bool(device.timed_on),
            permit=None if permit is None else permit.fd,
        )
        try:
            spawned = spawn(spec)
        except OSError:
            if permit is not None:
                permit.close()
            raise
        party = Party(spawned, device, self.limits, self.gate, permit)
        party.on_device = role != "builder"
        return party

    def start(self, role: Literal["builder", "compiler"]) -> Party:
        """Starts a party without waiting. Its user, in any thread, first calls `become` to give it its role. A compiler does not load torch."""
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
        """Returns a party in its role: "reference", "baseline", "runner" or "builder"."""
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
            return self.take(role, precision, mode)  # a spare may have died while it was waiting
        return party

    def take_all(self, wanted: Sequence[tuple[Role, str, str]]) -> list[Party]:
        """Returns parties for (role, precision, mode). All of them are started before the first is awaited. If one fails, all of them are
        terminated."""
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
        """Lets parties that will soon be taken start to assume their roles while the caller continues, because creating a GPU context takes half a
        second."""
        if not self.cancelled:
            self.coming += [Coming(self._fresh(terms[0]), terms) for terms in wanted]

    def begin(self, terms: tuple[Role, str, str]) -> Coming:
        """Does the same for one party, which the caller receives immediately and returns later."""
        if self.cancelled:
            raise Cancelled
        return Coming(self._fresh(terms[0]), terms)

    def importing(self, source: str) -> Importing:
        """Returns a party without a role and without a device, which begins to import what a capture of this task needs. The caller returns it
        later."""
        if self.cancelled:
            raise Cancelled
        self._sort_out()
        before, self.exporter = self.exporter, None
        if before is None:
            return Importing(self._fresh(""), source)
        with self.lock:
            self.busy.append(before.party)
        return Importing(before.party, source, after=before)

    def expect(self, coming: Coming) -> None:
        """Makes the next `take` of these terms return this party, or a fresh one if it fails."""
        self.coming.append(coming)

    def expects(self, terms: tuple[str, str, str]) -> bool:
        return any(one.terms == terms for one in self.coming)

    def ahead(self, terms: tuple[Role, str, str], then: Callable[[Party], None]) -> None:
        """Queues more work for an anticipated party, to run in its thread as soon as the party has its role."""
        for one in self.coming:
            if one.terms == terms:
                one.then(then)
                return

    def forget(self) -> None:
        """Terminates parties that were never taken."""
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
        """Runs several pieces of work concurrently, each in its own thread. Raises the first exception after all of them have ended."""
        if len(work) < 2:
            return [one() for one in work]

        def working(one: Callable[[], Result]) -> Result:
            with self.gate.working():
                return one()

        with self.gate.idle(), ThreadPoolExecutor(len(work), initializer=self.device.adopt_thread) as threads:
            return [future.result() for future in [threads.submit(working, one) for one in work]]

    def give_back(self, party: Party) -> None:
        """Terminates a party. No party is used twice."""
        party.end()
        with self.lock:
            if party in self.busy:
                self.busy.remove(party)

    def dismiss(self, party: Party) -> None:
        """Kills a party without waiting for it to end; `reap` waits."""
        party.alive = False
        if not party.spawned.ended:
            party.spawned.kill()
            self.ending.append(party)
        with self.lock:
            if party in self.busy:
                self.busy.remove(party)

    def reap(self) -> None:
        """Waits for dismissed parties. Call it before anything is measured or the device is examined."""
        ending, self.ending = self.ending, []
        for party in ending:
            party.end()

    def alive(self) -> list[Spawned]:
        """Returns the processes of every party. Thread-safe."""
        with self.lock:
            busy = list(self.busy)
        exporter = self.exporter
        ready = [*self.waiting, *self.builders, *([exporter.party] if exporter is not None else [])]
        return [party.spawned for party in [*ready, *busy] if not party.spawned.ended]

    def freezable(self) -> list[Freezable]:
        """Returns what must be frozen while another judge measures. Thread-safe."""
        if not self.host_goes_on:
            return list(self.alive())
        with self.lock:
            busy = [party for party in self.busy if not party.spawned.ended and party.on_device]
        return [party.still for party in busy]

    def stock(self, count: int) -> None:
        """Announces that `count` parties will soon be taken. Missing ones start to import torch while the caller continues, without touching the
        device."""
        self._sort_out()
        while len(self.waiting) < count and not self.cancelled:
            self.waiting.append(self.spawn())

    def settle(self) -> None:
        """Waits until spares have imported torch, because nothing is timed during the import. It does not wait if the host's work continues while
        others measure."""
        if self.host_goes_on:
            return
        with self.gate.idle():
            for party in self.waiting:
                party.settle()
            if self.exporter is not None:
                self.exporter.settle()

    def _sort_out(self) -> None:
        self.waiting = [party for party in self.waiting if party.spawned.process.poll() is None]
        if self.exporter is not None and self.exporter.party.spawned.process.poll() is not None:
            self.exporter = None

    def refill(self) -> None:
        """Refills the pool. Call it only when nothing is being measured."""
        self._sort_out()
        self.builders = [party for party in self.builders if party.spawned.process.poll() is None]
        while len(self.waiting) < self.spares:
            self.waiting.append(self.spawn())
        if self.spares and not self.builders:
            self.builders.append(self.spawn("builder"))
        if self.spares and self.exporter is None and self.device.begins_ahead:
            self.exporter = Importing(self.spawn())

    def cancel(self) -> None:
        """Kills the working parties from another thread. Any thread that is waiting for them immediately gets an error."""
        self.cancelled = True
        with self.lock:
            for party in self.busy:
                party.spawned.kill()

    def close(self) -> None:
        """Kills all parties first and then waits for each of them, because the driver needs a while for every process that held a context."""
        exporters = [self.exporter.party] if self.exporter is not None else []
        parties = [*self.waiting, *self.builders, *exporters, *self.busy, *self.ending]
        if parties:
            with ThreadPoolExecutor(len(parties)) as threads:
                list(threads.map(lambda party: party.spawned.kill(), parties))
                list(threads.map(lambda party: party.spawned.end(), parties))
        for party in parties:
            party.end()
        self.waiting, self.builders, self.busy, self.coming, self.ending, self.exporter = [], [], [], [], [], None


def data_folder(data_dir: Path, name: str) -> Path:
    """Returns a private folder of the judge in `data_dir` that other users cannot access."""
    folder = data_dir / name
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder
