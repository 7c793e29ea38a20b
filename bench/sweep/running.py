"""Runs a session: worker processes on every device take tasks from one queue until it is empty or time is up. No finished row is ever lost.

Several workers share a device if its memory permits (`_fits`): one at a time measures while the others are paused (`judge/gate.py`), and the work
between measurements, mostly on the host, overlaps.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.sweep.rows import failed
from bench.sweep.store import Store, slug
from bench.sweep.tasks import ROOT, Item, in_set, needs, untimed

LAST_SECONDS = 20.0  # seconds reserved at the end of a session to interrupt runs, end processes and pack archives
WORTH_BEGINNING = 15.0  # seconds that must be left to start another task
MANY, FEW_SPARES = 4, 4  # with more than MANY workers per device, each has few spares: they all start together, and importing torch takes 2 s
LOOK_SECONDS = 2.0  # seconds between two checks of a device's memory
TRIES = 2  # number of attempts for a task whose worker dies
LARGE = 60 * 2**30  # a task that needs more memory than this counts as large
FULL = ("the verifier could not do the job", "out of memory", "of device memory at its largest moment")  # messages that indicate a lack of memory


@dataclass
class Sitting:
    """A session. `given`: the options for `agents solve`. `task_seconds`: total time over all sessions after which a task counts as failed."""

    store: Store
    devices: Sequence[str]
    data_dir: Path
    given: Sequence[str]
    limit_seconds: float | None
    task_seconds: float
    spares: int | None = None
    share: int = 1  # workers per device, plus the same number for `no_search`
    no_search: Sequence[str] = ()  # sets whose tasks are measured without max-autotune's search
    memory: float = 135 * 2.0**30  # device memory shared by the workers; an H200 has 140 GiB
    keep_traces: bool = False
    begin_seconds: float = WORTH_BEGINNING
    begun: float = field(default_factory=time.monotonic)

    def run(self, items: Sequence[Item]) -> None:
        self.waiting = deque(items)
        self.tries: dict[str, int] = {}
        self.crowded = set[str]()  # tasks whose last run only reported a lack of device memory
        self.alone = set[str]()  # tasks that get a device to themselves because they ran out of memory when sharing one
        self.total, self.finished, self.stopped = len(items), set[str](), False
        self.workers: dict[str, subprocess.Popen[str]] = {}
        self.lock = threading.Lock()
        self.changed = threading.Condition(self.lock)
        self.running: dict[str, dict[str, Item]] = {device: {} for device in self.devices}
        self.free: dict[str, float] = {}  # free bytes at the last check
        self.look_again: dict[str, float] = {}
        places = [(device, number) for number in range(self._workers()) for device in self.devices]
        threads = [threading.Thread(target=self._serve, args=place) for place in places]
        for thread in threads:
            thread.start()
        packed = time.monotonic()
        try:
            while any(thread.is_alive() for thread in threads):
                time.sleep(0.2)
                if self.left() <= LAST_SECONDS and not self.stopped:
                    self._stop()
                if time.monotonic() - packed > 60:
                    packed = time.monotonic()
                    self.store.pack()
        except KeyboardInterrupt:
            self._stop()
        for thread in threads:
            thread.join()
        self.store.pack()

    def _workers(self) -> int:
        """Returns the number of workers per device."""
        return self.share * (2 if self.no_search else 1)

    def left(self) -> float:
        return float("inf") if self.limit_seconds is None else self.limit_seconds - (time.monotonic() - self.begun)

    def _stop(self) -> None:
        """Interrupts the runs in flight; their traces are kept."""
        with self.lock:
            self.stopped = True
            for worker in self.workers.values():
                worker.send_signal(signal.SIGTERM)

    def _next(self, device: str, number: int) -> Item | None:
        """Returns this worker's next task that fits into the device's free memory. Waits if there is none yet."""
        with self.changed:
            while not self.stopped and self.left() >= LAST_SECONDS + self.begin_seconds:
                mine = [item for item in self.waiting if self._takes(number, item)]
                if not mine:
                    return None
                fitting = [item for item in mine if self._fits(device, item)]
                free = self._free(device) if fitting and self.running[device] else float("inf")
                item = next((item for item in fitting if self._untimed(item) <= free), None)
                if item is not None:
                    self.waiting.remove(item)
                    self.running[device][item.key] = item
                    return item
                self.changed.wait(1.0)
            return None

    def _searches(self, number: int) -> bool:
        """Returns whether this worker's verifier enables the search of max-autotune."""
        return number < self.share

    def _takes(self, number: int, item: Item) -> bool:
        """Returns whether the task is suitable for this worker."""
        return self._searches(number) != any(in_set(name, item.key) for name in self.no_search)

    def _fits(self, device: str, item: Item) -> bool:
        """Returns whether a task may start now. Only one large task is timed at a time. Small tasks leave room for the largest task that is waiting
        or running; otherwise, they would follow one another and the large one would never start."""
        running = [*self.running[device].values()]
        if self._together([*running, item]) > self.memory:
            return False
        large = [need for need in map(self._needs, [*running, *self.waiting]) if need > LARGE]
        small = [need for need in map(self._needs, [*running, item]) if need <= LARGE]
        return self._needs(item) > LARGE or sum(small) + max(large, default=0.0) <= self.memory

    def _together(self, items: Sequence[Item]) -> float:
        """Returns the total number of bytes that these tasks need."""
        return sum(map(self._untimed, items)) + max((self._needs(item) - self._untimed(item) for item in items), default=0.0)

    def _free(self, device: str) -> float:
        """Returns the number of free bytes from a recent check, because all workers of all devices request it."""
        if time.monotonic() >= self.look_again.get(device, 0.0):
            free = memory_of(device, "free")  # estimates of a run's memory may be too low
            self.free[device] = float("inf") if free is None else free
            self.look_again[device] = time.monotonic() + LOOK_SECONDS
        return self.free[device]

    def _needs(self, item: Item) -> float:
        return self.memory if item.key in self.alone else min(needs(item), self.memory)

    def _untimed(self, item: Item) -> float:
        return self.memory if item.key in self.alone else min(untimed(item), self.memory)

    def _give_back(self, device: str, item: Item, crowded: bool = False) -> None:
        with self.changed:
            del self.running[device][item.key]
            if crowded:
                self.alone.add(item.key)
                self.waiting.append(item)
            self.changed.notify_all()

    def _serve(self, device: str, number: int) -> None:
        """Serves all tasks of one worker. Restarts a worker that dies and tries its task once more."""
        while (item := self._next(device, number)) is not None:
            worker = self._start(device, number)
            if worker is None:
                with self.lock:
                    self.waiting.appendleft(item)
                self._give_back(device, item)
                return
            well = True
            while item is not None and well:
                self.crowded.discard(item.key)
                try:
                    well = self._solve(device, worker, item)
                finally:
                    self._give_back(device, item, item.key in self.crowded)
                item = self._next(device, number) if well else None
            if well:
                worker.stdin.close()
            worker.wait()

    def _start(self, device: str, number: int) -> subprocess.Popen[str] | None:
        name = f"{device.replace(':', '-')}{f'-{number}' if number else ''}"
        command = [sys.executable, "-m", "bench.sweep.device", "--device", device, "--data-dir", str(self.data_dir / name)]
        spares = FEW_SPARES if self.spares is None and self._workers() > MANY else self.spares
        command += ["--spares", str(spares)] if spares is not None else []
        with (self.store.work / f"{name}.log").open("ab") as log:
            given = [*self.given, *([] if self._searches(number) else ["--autotune-seconds", "0"])]
            worker = subprocess.Popen([*command, *given], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        with self.lock:
            self.workers[name] = worker
            if self.stopped:
                worker.send_signal(signal.SIGTERM)
        said = answer(worker)
        if said is None or "ready" not in said:
            print(f"{device}: not used: {said['unusable'] if said else f'see {name}.log'}", flush=True)
            worker.wait()
            return None
        self.store.note(device=said["ready"])
        return worker

    def _solve(self, device: str, worker: subprocess.Popen[str], item: Item) -> bool:
        """Solves a task. Returns whether the worker can take another task."""
        folder = self.store.runs / slug(item.key)
        before = self.store.content["unfinished"].get(item.key, {}).get("seconds", 0.0)
        order = {"key": item.key, "path": str(item.path.resolve()), "precision": item.precision, "folder": str(folder)}
        begun = time.monotonic()
        watch = threading.Timer(max(self.task_seconds - before, 1.0), worker.send_signal, [signal.SIGTERM])
        watch.daemon = True
        watch.start()
        try:
            worker.stdin.write(json.dumps(order) + "\n")
            worker.stdin.flush()
            said = answer(worker)
        except OSError:
            said = None
        watch.cancel()
        seconds = time.monotonic() - begun
        if said is not None and "row" in said and self._workers() > 1 and item.key not in self.alone and the_hosts(said["row"]):
            print(f"{item.key} on {device}: {line(said['row'])}; once more, with the device for itself", flush=True)
            shutil.rmtree(folder, ignore_errors=True)
            self.crowded.add(item.key)
            return True
        if said is not None and "row" in said:
            if item.key in self.alone:
                said["row"]["second_try"] = True  # the first attempt, made alongside other tasks, only reported a lack of memory
            self._finish(device, item, said["row"], folder)
            return True
        worker.wait()
        if said is not None and before + seconds < self.task_seconds:
            self.store.interrupted(item.key, seconds)
            print(f"{item.key} on {device}: interrupted after {seconds:.0f} s, to be continued", flush=True)
        elif said is not None:
            self._finish(device, item, failed(f"given up after {before + seconds:.0f} s", before + seconds), folder)
        else:
            self._died(device, item, folder, seconds)
        return False

    def _died(self, device: str, item: Item, folder: Path, seconds: float) -> None:
        self.tries[item.key] = self.tries.get(item.key, 0) + 1
        if self.tries[item.key] >= TRIES:
            self._finish(device, item, failed("the process that solves it died, twice", seconds), folder)
        else:
            print(f"{item.key} on {device}: its process died; once more", flush=True)
            with self.lock:
                self.waiting.appendleft(item)

    def _finish(self, device: str, item: Item, row: dict[str, Any], folder: Path) -> None:
        self.store.finished(item.key, row, folder / "best.py")
        if not self.keep_traces:
            shutil.rmtree(folder, ignore_errors=True)
        with self.lock:
            self.finished.add(item.key)
            print(f"[{len(self.finished)}/{self.total}, {time.monotonic() - self.begun:.0f} s] {item.key} on {device}: {line(row)}", flush=True)


def memory_of(device: str, which: str) -> float | None:
    """Returns the "free" or "total" bytes of a GPU, or None if they are unknown."""
    kind, _, number = device.partition(":")
    if kind != "cuda" or shutil.which("nvidia-smi") is None:
        return None
    asked = ["nvidia-smi", f"--id={number or 0}", f"--query-gpu=memory.{which}", "--format=csv,noheader,nounits"]
    said = subprocess.run(asked, capture_output=True, text=True).stdout.strip()
    return float(said) * 2**20 if said.isdigit() else None


def the_hosts(row: dict[str, Any]) -> bool:
    """Returns whether a row is unrelated to the compiler, because the verifier could not do its work or because memory ran out (perhaps because
    others share the device)."""
    why = row.get("why", "")
    return row["status"] in ("infrastructure_error", "inconclusive") or any(said in why for said in FULL)


def answer(worker: subprocess.Popen[str]) -> dict[str, Any] | None:
    """Returns the worker's next message, or None if the worker has ended."""
    while said := worker.stdout.readline():
        if said.startswith("{"):
            return json.loads(said)
    return None


def line(row: dict[str, Any]) -> str:
    if row.get("best"):
        flags = f", {' and '.join(row['flags'])}" if row["flags"] else ""
        return (
            f"{row['class']}, {row['vs_eager']['ratio']:.2f}x eager, {row['best']['ratio']:.2f}x {row['best']['baseline']}, "
            f"{row['candidates']} programs in {row['seconds']:.0f} s{flags}"
        )
    return f"{row['status']}: {row.get('why', '')}"[:200]
