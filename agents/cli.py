"""The command line of the agents: whole runs on a bare machine, without a database."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import get_args

from agents import show
from agents.events import NewEvent
from agents.journal import TRACE, FileJournal, TraceDamaged, read_trace
from agents.llm.cli import add_commands
from agents.local import LocalVerifier
from agents.projection import Summary, project
from agents.results import write_results
from agents.run import Engine
from agents.settings import Budget, Settings
from verifier.task import Mode, Precision

EXIT = {"improved": 0, "matched": 0, "failed": 1, "out_of_budget": 3, "cancelled": 4}
USAGE, INTERRUPTED = 2, 130
EXIT_CODES = """exit codes:
  0    every run ended with a program that passed (improved, or matched: correct but not faster)
  1    a run failed          2    bad arguments, or a directory that cannot be used
  3    a run is out of budget    4    a run was cancelled
  130  interrupted: continue with --resume"""


class Unusable(ValueError):
    """Arguments that cannot be acted on; says what to do."""


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m agents", description="Turn PyTorch models into faster, verified programs.")
    commands = top.add_subparsers(dest="command", required=True)

    solve = commands.add_parser(
        "solve",
        help="solve tasks: plan, write, verify, profile, improve, confirm",
        description="Solve one or more tasks (files in KernelBench's format, or folders of them). One task writes into --out itself, several "
        "into a folder each: trace.jsonl, artefacts/, reports/, best.py, summary.json.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    solve.add_argument("tasks", nargs="+", type=Path, metavar="TASK", help="a task's source, or a folder")
    solve.add_argument("--out", type=Path, required=True, metavar="DIR", help="where the runs are written")
    solve.add_argument("--device", default="cpu", help="cpu, or cuda:0 and so on (default: cpu)")
    solve.add_argument("--workflow", choices=["stitch", "verify"], default="stitch", help="verify: measure --program instead of writing one")
    solve.add_argument("--program", type=Path, metavar="FILE", help="a program with ModelNew, for --workflow verify")
    solve.add_argument("--precision", choices=get_args(Precision), default="fp32-strict", help="the policy for program and baselines alike")
    solve.add_argument("--mode", choices=get_args(Mode), default="train", help="the model's mode (default: train, as KernelBench leaves it)")
    solve.add_argument("--target", type=float, metavar="X", help="stop at this lower bound of the speedup against eager")
    defaults = Budget()
    solve.add_argument("--budget-candidates", type=int, default=defaults.candidates, metavar="N", help=f"programs (default: {defaults.candidates})")
    seconds = f"verifier time in seconds (default: {defaults.verifier_seconds:g}, 0: no limit)"
    solve.add_argument("--budget-verifier-seconds", type=float, default=defaults.verifier_seconds, metavar="S", help=seconds)
    seconds = f"wall time in seconds (default: {defaults.seconds:g}, 0: no limit)"
    solve.add_argument("--budget-seconds", type=float, default=defaults.seconds, metavar="S", help=seconds)
    solve.add_argument("--resume", action="store_true", help="continue what was interrupted in --out; finished runs are left as they are")
    solve.add_argument("--data-dir", type=Path, metavar="DIR", help="the verifier's build cache (default: stitchwork in the user's cache folder)")
    solve.add_argument("--json", action="store_true", help="print the summaries as JSON instead of the table")
    solve.add_argument("--quiet", action="store_true", help="no progress on stderr")

    shown = commands.add_parser("show", help="print a run from its directory")
    shown.add_argument("directory", type=Path, metavar="DIR")
    shown.add_argument("--events", action="store_true", help="the conversation, line by line")
    shown.add_argument("--json", action="store_true", help="the summary as JSON")

    control = commands.add_parser("control", help="pause, resume or cancel a run that another process is at")
    control.add_argument("directory", type=Path, metavar="DIR")
    control.add_argument("action", choices=["pause", "resume", "cancel"])
    add_commands(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    args = parser().parse_args(arguments)
    try:
        if hasattr(args, "act"):
            return args.act(args)
        if args.command == "solve":
            return asyncio.run(solve(args))
        if args.command == "show":
            return show_run(args)
        return asyncio.run(control(args))
    except (Unusable, TraceDamaged) as error:
        print(f"agents: {error}", file=sys.stderr)
        return USAGE
    except (KeyboardInterrupt, asyncio.CancelledError):
        again = f" Continue with the same command and --resume; what is done is in {args.out}." if args.command == "solve" else ""
        print(f"agents: interrupted.{again}", file=sys.stderr)
        return INTERRUPTED


async def solve(args: argparse.Namespace) -> int:
    tasks = find_tasks(args.tasks)
    if args.workflow == "verify" and args.program is None:
        raise Unusable("--workflow verify needs --program FILE")
    folders = {path: args.out if len(tasks) == 1 else args.out / name for path, name in tasks.items()}
    for folder in folders.values():
        if (folder / TRACE).exists() and not args.resume:
            raise Unusable(f"{folder} already holds a run: continue it with --resume, or choose another --out")
    loop = asyncio.get_running_loop()
    me = asyncio.current_task()
    with suppress(NotImplementedError):
        loop.add_signal_handler(signal.SIGTERM, me.cancel)

    client = open_verifier(args.device, args.data_dir or default_data_dir())
    summaries: dict[str, Summary] = {}
    try:
        for path, name in tasks.items():
            summaries[name] = await solve_one(args, path, name, folders[path], client)
    finally:
        await client.close()
    if args.json:
        print(json.dumps({name: s.model_dump(mode="json", exclude={"queued_at"}) for name, s in summaries.items()}, indent=1))
    else:
        print(show.columns(show.TABLE, [show.table_row(name, s) for name, s in summaries.items()]))
    codes = [EXIT.get(s.outcome, 1) for s in summaries.values()]
    return next((code for code in (1, 3, 4) if code in codes), 0)


def open_verifier(device: str, data_dir: Path):
    from verifier.client import Verifier  # torch takes seconds to load: not for --help

    data_dir.mkdir(parents=True, exist_ok=True)
    return Verifier(device, data_dir)


async def solve_one(args: argparse.Namespace, path: Path, name: str, folder: Path, client) -> Summary:
    """One run in `folder`: begun, or continued with the settings, task and program that its trace began with."""
    journal = FileJournal(folder)
    begun = await journal.load()
    if begun and begun[0].kind == "run.started":
        payload = begun[0].payload
        settings = Settings.model_validate(payload)
        source = (await journal.get(payload["source"]["sha"])).decode()
        name = payload["task"]["name"]
        program = (await journal.get(payload["program"]["sha"])).decode() if payload.get("program") else None
    else:
        source, settings = read_source(path), settings_from(args)
        program = read_source(args.program) if args.workflow == "verify" else None
    engine = Engine(journal, LocalVerifier(journal, client, settings.device), settings, source, name, program_source=program)
    progress = None if args.quiet else Progress(journal, len(begun))
    try:
        summary = await engine.execute()
        write_results(folder, summary)
        return summary
    finally:
        if progress is not None:
            await progress.stop()


class Progress:
    """Prints what is appended to a journal, as it is appended."""

    def __init__(self, journal: FileJournal, seen: int):
        self.journal, self.seen = journal, seen
        self._task = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        async for _ in self.journal.wakeups():
            await self._print()

    async def _print(self) -> None:
        for event in await self.journal.since(self.seen):
            self.seen = event.seq
            line = show.line(event)
            if line:
                print(line, file=sys.stderr, flush=True)

    async def stop(self) -> None:
        self._task.cancel()
        await self._print()


def find_tasks(given: Sequence[Path]) -> dict[Path, str]:
    """Task files with names that differ, from files and folders."""
    files: list[Path] = []
    for path in given:
        if path.is_dir():
            files += sorted(p for p in path.glob("*.py") if not p.name.startswith("_"))
        elif path.is_file():
            files.append(path)
        else:
            raise Unusable(f"there is no task {path}")
    if not files:
        raise Unusable(f"no tasks in {', '.join(map(str, given))}")
    names: dict[Path, str] = {}
    for path in dict.fromkeys(files):
        name, number = path.stem, 2
        while name in names.values():
            name, number = f"{path.stem}-{number}", number + 1
        names[path] = name
    return names


def read_source(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Unusable(f"{path} cannot be read as UTF-8 text: {error}") from None


def settings_from(args: argparse.Namespace) -> Settings:
    try:
        budget = Budget(candidates=args.budget_candidates, verifier_seconds=args.budget_verifier_seconds or None, seconds=args.budget_seconds or None)
        return Settings(workflow=args.workflow, device=args.device, precision=args.precision, mode=args.mode, target=args.target, budget=budget)
    except ValueError as error:
        raise Unusable(f"these settings are not possible: {error}") from None


def default_data_dir() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stitchwork"


def show_run(args: argparse.Namespace) -> int:
    if not (args.directory / TRACE).exists():
        raise Unusable(f"{args.directory} holds no {TRACE}")
    events, _ = read_trace(args.directory)
    summary = project(events)
    if args.json:
        print(summary.model_dump_json(indent=1, exclude={"queued_at"}))
        return 0
    if args.events:
        print("\n".join(text for text in map(show.line, events) if text))
        print()
    print(show.page(summary))
    return 0


async def control(args: argparse.Namespace) -> int:
    if not (args.directory / TRACE).exists():
        raise Unusable(f"{args.directory} holds no {TRACE}")
    journal = FileJournal(args.directory, owner=False)
    if project(await journal.load()).state == "finished":
        raise Unusable("this run has finished")
    payload = {"action": args.action, "by": "the command line"}
    await journal.append([NewEvent(kind="control.requested", agent="person", payload=payload)])
    return 0
