"""Runs a shard of a survey. Worker processes prepare and compile tasks ahead of the one process that holds the device."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from agents.arena.landscape import Landscape, Table, load, save
from bench.surveying.preparing import Prepared, compile_one, prepare
from bench.surveying.suite import Subject
from compiler import DeviceFigures
from verifier.devices.cuda_driver import GpuIdentity

AHEAD = 4  # number of tasks that are prepared ahead of the one being measured
MAX_DEATHS = 6  # number of times that the measuring process may die before a shard is abandoned


@dataclass
class Shard:
    """A shard's tasks, its device, and its earlier results."""

    device: str
    subjects: Sequence[Subject]
    out: Path
    data_dir: Path
    wanted: int
    most: int
    until: float  # time.monotonic
    cores: list[int]  # processors for workers; the measuring process uses others
    facts: dict[str, Any] | None = None  # the device figures for plans, from a verifier's environment; None: query the driver
    begun: float = field(default_factory=time.monotonic)
    spent: dict[str, float] = field(default_factory=dict)  # device time per task in seconds

    @property
    def flying(self) -> Path:
        return self.out.with_suffix(".flying")

    def measure(self) -> bool:
        """Measures until everything is done (and returns true) or the time is up. Resumes from `out`."""
        from bench.surveying.measuring import Bench, Result, landscape_of, results_of
        from bench.surveying.stopwatch import Stopwatch

        known = {landscape.name: landscape for landscape in load(self.out).landscapes} if self.out.exists() else {}
        crashed = self.crash()
        folder = self.folder()
        with self.workers() as pool:
            ready = self.ready(pool, folder, known)
            watch = Stopwatch(self.device, self.data_dir)
            environment = watch.judge.environment().model_dump(mode="json")
            complete = True
            for prepared in ready:
                name = prepared.subject.name
                landscape = known.get(name)
                results = (results_of(landscape, prepared) if landscape else None) or {}
                eager = [landscape.eager_us] if landscape and results and landscape.eager_us else []
                if crashed and crashed["task"] == name and crashed["number"] >= 0:
                    results[crashed["number"]] = Result("crashed", note="the process that ran it died")
                begin = time.monotonic()
                bench = Bench(prepared, watch, folder, results, eager)

                def keep(prepared: Prepared = prepared, bench: Bench = bench) -> None:
                    known[prepared.subject.name] = landscape_of(prepared, bench.results, bench.eager_us)
                    self.keep(known, environment)

                if crashed and crashed["task"] == name:
                    keep()  # if the process dies again, this result must not be lost
                done = bench.run(self.flying, self.until, keep)
                keep()
                self.spent[name] = round(time.monotonic() - begin, 1)
                self.say(known[name], self.spent[name])
                for status, result in {result.status: result for result in bench.results.values() if result.note}.items():
                    count = sum(other.status == status for other in bench.results.values())
                    print(f"    {count} {status}, such as: {' '.join(result.note.split())[:300]}", flush=True)
                del bench
                watch.empty()
                complete = complete and done
                if not done:
                    break
            watch.close()
            pool.shutdown(wait=False, cancel_futures=True)
        return complete and len(known) == len(self.subjects)

    def crash(self) -> dict[str, Any] | None:
        """Returns why the previous process died."""
        try:
            return json.loads(self.flying.read_text())
        except (OSError, ValueError):
            return None

    def workers(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(max(1, len(self.cores)), mp_context=get_context("spawn"), initializer=_at_work, initargs=(self.cores,))

    def ready(self, pool: ProcessPoolExecutor, folder: Path, known: dict[str, Landscape]) -> Iterator[Prepared]:
        """Yields tasks in shard order, each one as soon as its kernels are compiled, while the following tasks are prepared. Tasks that an earlier
        session has measured are not compiled again."""
        from bench.surveying.measuring import results_of

        figures, compiler, arch = self.figures(), self.compiler(), self.arch()
        preparing: dict[int, Future] = {}
        compiling: dict[int, list[Future]] = {}

        def begin(at: int) -> None:
            if at < len(self.subjects) and at not in preparing:
                preparing[at] = pool.submit(prepare, self.subjects[at], figures, self.wanted, self.most)

        def compile_batches(at: int) -> None:
            if at in preparing and at not in compiling and preparing[at].done() and preparing[at].exception() is None:
                prepared = preparing[at].result()
                landscape = known.get(prepared.subject.name)
                done = (results_of(landscape, prepared) if landscape else None) or {}
                wanted = [n for n, batch in enumerate(prepared.batches) if any(number not in done for number in batch)]
                compiling[at] = [pool.submit(compile_one, prepared, n, compiler, arch, folder) for n in wanted]

        for at in range(len(self.subjects)):
            for ahead in range(at, at + 1 + AHEAD):
                begin(ahead)
            try:
                prepared = preparing[at].result()
            except Exception as error:  # a task that cannot be prepared must not stop the survey
                print(f"  {self.subjects[at].name}: left out ({type(error).__name__}: {str(error)[:300]})", flush=True)
                continue
            compile_batches(at)
            for future in compiling[at]:
                future.result()
            for ahead in range(at + 1, at + 1 + AHEAD):
                compile_batches(ahead)
            yield prepared

    def compile(self) -> int:
        """Compiles every kernel without a device, for a survey that is measured elsewhere. Returns the number of libraries."""
        folder = self.folder()
        with self.workers() as pool:
            for prepared in self.ready(pool, folder, {}):
                print(f"  {prepared.subject.name}: {len(prepared.space.sources)} programs in {len(prepared.batches)} libraries", flush=True)
        return len(list(folder.glob("*.so")))

    def folder(self) -> Path:
        folder = self.data_dir / "landscapes" / (self.arch() or "cpu")
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def figures(self) -> DeviceFigures:
        if self.facts is not None:
            return DeviceFigures.of(self.facts, self.device)
        if self.device == "cpu":
            return DeviceFigures.cpu(len(os.sched_getaffinity(0)))
        from verifier.devices import cuda_driver

        facts = cuda_driver.facts(int(self.device.partition(":")[2] or 0))
        described = {"device": self.device, "device_name": facts.name, "multiprocessors": facts.multiprocessors, "l2_bytes": facts.l2_bytes}
        described["capability"] = "{}.{}".format(*facts.capability)
        return DeviceFigures.of({**described, "bandwidth_gbs": (facts.bandwidth or 0) / 1e9}, self.device)

    def compiler(self) -> str:
        if self.device == "cpu":
            return shutil.which("g++") or "g++"
        from verifier.devices.cuda import find_nvcc

        return find_nvcc() or "nvcc"

    def arch(self) -> str:
        if self.device == "cpu":
            return ""
        if self.facts is not None:
            major, minor = map(int, str(self.facts["capability"]).split("."))
            return GpuIdentity("", (major, minor)).arch
        from verifier.devices import cuda_driver

        return cuda_driver.facts(int(self.device.partition(":")[2] or 0)).arch

    def keep(self, known: dict[str, Landscape], environment: dict[str, Any]) -> None:
        about = {"seconds": round(time.monotonic() - self.begun, 1), "device_seconds": self.spent, "wanted": self.wanted, "most": self.most}
        table = Table("measured", environment, list(known.values()), about)
        plain = self.out.with_suffix(".json")
        written = save(table, plain)
        if written != self.out:
            written.replace(self.out)

    def say(self, landscape: Landscape, seconds: float) -> None:
        passed = [landscape.us[i] for i, status in enumerate(landscape.status) if status == 0]
        best = f"eager {landscape.eager_us:.1f} us, best {min(passed):.1f} us" if passed else "nothing passed"
        print(
            f"  {landscape.name}: {landscape.measured} of {landscape.distinct} programs, {len(landscape)} points, {best}, {seconds:.0f} s", flush=True
        )


def _at_work(cores: list[int]) -> None:
    os.nice(5)
    if cores:
        try:
            os.sched_setaffinity(0, cores)
        except OSError:
            pass  # a container that does not allow these processors


def restarted(command: Callable[[float], Sequence[str]], flying: Path, seconds: float) -> int:
    """Runs a shard's measuring process for the remaining seconds. If a program kills it, it is restarted, and `flying` identifies that program."""
    until = time.monotonic() + seconds
    for _ in range(MAX_DEATHS):
        code = subprocess.run(command(max(until - time.monotonic(), 1.0))).returncode
        if code in (0, 2, 3, 130) or not flying.exists():
            return code
        print(f"  the measuring process ended with {code} over {flying.read_text()}: started again", flush=True)
    return code
