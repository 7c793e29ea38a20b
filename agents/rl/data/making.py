"""Creates synthetic tasks and their programs, which run only inside the verifier's sandbox. Each step can be interrupted. Running the command again
resumes it, because finished work is already in the file."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from agents.local import Client
from agents.rl.data.qualities import Written, borne_out, cheat, honest, wrong_program, wrong_task
from agents.rl.data.rows import DataRow, Kind, feedback, figures, slim_json
from agents.rl.data.scrub import Scrubber
from agents.rl.data.synthetic import SyntheticTask, drawn
from agents.rl.reward import score
from agents.rl.rubric import Before, Skill, gain
from compiler import DeviceFigures
from verifier.jobs import AdmitJob, CaptureJob, Job, JobResult, VerifyJob
from verifier.report import Report

AGREEMENT = "synthetic: made by this program"
EVERY_CHEAT = 8  # one in this many tasks gets a cheat; the export limits the share of cheats

Say = Callable[[str], None]


class Runs(Protocol):
    """A single verifier, or a pool of them."""

    async def run(self, job: Job) -> JobResult: ...


class Lines:
    """An append-only file of JSON lines. A last line that a crash left incomplete is removed."""

    def __init__(self, path: Path):
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        data = path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole != len(data):
            with path.open("r+b") as file:
                file.truncate(whole)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        with self.path.open(encoding="utf-8") as file:
            for line in file:
                yield json.loads(line)

    def append(self, value: dict[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n")


def line_of(task: SyntheticTask, seed: int) -> dict[str, Any]:
    chain = task.chain
    return {"seed": seed, "number": task.number, "sha": task.sha, "name": chain.name, "families": chain.families, "source": task.source}


def task_of(line: dict[str, Any]) -> SyntheticTask:
    """Restores the task described by a line. Raises `ValueError` if this version of the generator would draw a different task."""
    task = SyntheticTask(line["number"], drawn(line["seed"], line["number"]))
    if task.sha != line["sha"]:
        raise ValueError(f"task {line['number']} was drawn by another version of the generator: synthesise again")
    return task


async def admit(tasks: Sequence[dict[str, Any]], client: Runs, into: Lines, say: Say, at_once: int = 1) -> int:
    """Applies the execution filter: a task is kept if it runs, is neither trivial nor stochastic, and produces finite results. Returns the number of
    tasks that were kept. A host failure is inconclusive, so the task is tried again the next time. `at_once`: the number of tasks that run
    concurrently."""
    known = {line["sha"]: line["kept"] for line in into}

    async def one(place: int, task: dict[str, Any]) -> None:
        result = await client.run(AdmitJob(task_source=task["source"]))
        if result.admission is None:
            say(f"{place} of {len(tasks)}: {task['name']}: no answer ({result.error[:200]})")
            return
        found = result.admission
        why = "; ".join([*found.flags, *(problem.message for problem in found.problems)])[:500]
        kept = known[task["sha"]] = bool(found.ok and not found.flags)
        into.append({"sha": task["sha"], "kept": kept, "why": why})
        say(f"{place} of {len(tasks)}: {task['name']}: {'kept' if kept else f'left out: {why}'}")

    await _side_by_side(tasks, set(known), one, at_once)
    return sum(known.get(task["sha"], False) for task in tasks)


async def programs(
    tasks: Sequence[dict[str, Any]], client: Runs, device: DeviceFigures, into: Lines, settled: Lines, seed: int, say: Say, at_once: int = 1
) -> int:
    """Creates rows for every task: programs that passed (skill 1), steps from slow and wrong programs to the tuned one (skill 2), and a few cheats.
    `settled` is called with each finished task. A task that could not be measured because of the host stays unfinished; any of its rows that are
    already in `into` are not created again."""
    known, made = {row["id"] for row in into}, 0

    async def one(place: int, line: dict[str, Any]) -> None:
        nonlocal made
        maker = _Maker(task_of(line), client, device, random.Random(f"{seed}:{line['sha']}"))
        rows = [row for row in await maker.rows() if row.id not in known]
        for row in rows:
            into.append(row.as_dict())
        known.update(row.id for row in rows)
        made += len(rows)
        if maker.settled:
            settled.append({"sha": line["sha"]})
        say(f"{place} of {len(tasks)}: {line['name']}: {', '.join(f'{row.kind} {row.quality}' for row in rows) or 'nothing was borne out'}")

    await _side_by_side(tasks, {line["sha"] for line in settled}, one, at_once)
    return made


async def _side_by_side(tasks: Sequence[dict[str, Any]], done: set[str], one: Callable[[int, dict[str, Any]], Awaitable[None]], at_once: int) -> None:
    """Runs `one` for each unfinished task, passing its index, with at most `at_once` running concurrently."""
    due = ((place, task) for place, task in enumerate(tasks, start=1) if task["sha"] not in done)

    async def work() -> None:
        for place, task in due:  # all workers share this iterator, and each takes its next task from it
            await one(place, task)

    async with asyncio.TaskGroup() as workers:
        for _ in range(at_once):
            workers.create_task(work())


async def figures_of(client: Client) -> DeviceFigures:
    """Returns the figures of the target device."""
    return DeviceFigures.of({**(await client.ready()).model_dump(mode="json"), **await client.figures()})


class _Maker:
    def __init__(self, task: SyntheticTask, client: Runs, device: DeviceFigures, rng: random.Random):
        self.task, self.client, self.device, self.rng = task, client, device, rng
        self.settled = True  # false after any verdict caused by a host failure

    async def rows(self) -> list[DataRow]:
        found = [(written, report) for written in await self._written() if (report := await self._judged(written)) is not None]
        by = {written.quality: (written, report) for written, report in found if borne_out(written, report)}
        rows = [self._row(*by[quality], None, "write") for quality in ("tuned", "slow", "cheat") if quality in by]
        if "tuned" in by and "wrong" in by:
            rows.append(self._row(*by["tuned"], by["wrong"], "repair"))
        if "tuned" in by and "slow" in by and gain(by["tuned"][1], by["slow"][1]) > 1:
            rows.append(self._row(*by["tuned"], by["slow"], "optimise"))
        return rows

    async def _written(self) -> list[Written]:
        source = self.task.source
        captured = (await self.client.run(CaptureJob(task_source=source))).capture
        found = honest(source, captured, self.device, self.rng) if captured is not None else []
        if found:
            other = wrong_task(self.task.chain, self.rng)
            captured = (await self.client.run(CaptureJob(task_source=other))).capture
            mistaken = wrong_program(other, captured, self.device) if captured is not None else None
            found += [mistaken] if mistaken is not None else []
        if self.rng.randrange(EVERY_CHEAT) == 0:
            found.append(cheat(source, self.rng))
        return found

    async def _judged(self, written: Written) -> Report | None:
        result: JobResult = await self.client.run(VerifyJob(task_source=self.task.source, program_source=written.source))
        if result.report is None or result.report.status in ("inconclusive", "infrastructure_error", "timed_out"):
            self.settled = False
            return None
        return result.report

    def _row(self, written: Written, report: Report, before: tuple[Written, Report] | None, kind: Kind) -> DataRow:
        skill: Skill = "write" if before is None else "improve"
        scored = score(report, self.task.source, written.source, skill, before=Before(before[1]) if before else None)
        key = f"synthetic:{kind}:{report.task}:{report.program}:{before[1].program if before else ''}"
        return DataRow(
            id=hashlib.sha256(key.encode()).hexdigest()[:24],
            skill=skill,
            kind=kind,
            task_name=self.task.chain.name,
            task=self.task.source,
            program=written.source,
            before_sha=before[1].program if before else "",
            before=before[0].source if before else "",
            status_before=before[1].status if before else "",
            feedback=feedback(before[1]) if before else "",
            diagnosis_before="",
            report_before=slim_json(before[1], Scrubber({})) if before else "",
            quality=written.quality,
            reward=scored.reward,
            components=scored.line(),
            origin="synthetic",
            run="",
            candidate=None,
            strategy=written.how,
            coder="built-in",
            agreement=AGREEMENT,
            **figures(report, Scrubber({})),
        )
