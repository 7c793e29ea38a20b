"""The agents' command line, which executes complete runs on a bare machine, without a database."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from agents import show, sound, steering
from agents.answering import REQUESTS, add_answer
from agents.arena import cli as arena
from agents.arguments import Unusable, add_settings, devices_from, settings_from
from agents.choices.workflows import OWN_PROGRAM
from agents.devices import open_devices
from agents.forking import settings_by_fork
from agents.given import default_data_dir, find_tasks, open_verifier, read_source
from agents.journal import TRACE, FileJournal, TraceDamaged
from agents.knowledge import FolderLibrary
from agents.llm import open_models
from agents.llm.cli import add_commands
from agents.llm.mailbox import FileMailbox
from agents.llm.models import Models
from agents.local import Client, LocalVerifier
from agents.memory import earned
from agents.memory.experience import FolderExperience
from agents.memory.inspirations import FolderInspirations, Split
from agents.payloads import RunStarted, artefact
from agents.projection import Summary, project
from agents.results import write_results
from agents.roles.casting import roles_for
from agents.run import Engine
from agents.workflows import FUNCTIONS
from verifier.source import sha256

if TYPE_CHECKING:
    pass

EXIT = {"improved": 0, "matched": 0, "failed": 1, "out_of_budget": 3, "cancelled": 4, "": 5, "inconclusive": 6}  # empty outcome: paused
USAGE, INTERRUPTED = 2, 130
EXIT_CODES = """exit codes:
  0    every run ended with a program that passed (improved, or matched: correct but not faster)
  1    a run failed          2    bad arguments, or a directory that cannot be used
  3    a run is out of budget    4    a run was cancelled
  5    a run is paused: a request waits for its reply, a model did not answer, a plan waits to be read, or the run needs its device; continue with
       --resume
  6    the host was too busy to measure a program: try again when it is quieter
  130  interrupted: continue with --resume"""


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
    solve.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the runs")
    add_settings(solve)
    solve.add_argument("--program", type=Path, metavar="FILE", help=f"a program with ModelNew, for --workflow {OWN_PROGRAM.name}")
    solve.add_argument("--documents", type=Path, metavar="DIR", help="text and Markdown that a diagnosis may look up and cite")
    solve.add_argument("--learn-from", type=Path, metavar="DIR", help="finished runs whose confirmed improvements may inspire this one")
    waiting = "if a model does not answer, or a plan waits for review: end the process with the run paused (default), or wait for `resume`"
    kept = "experience of earlier runs on this device: promises that strategies kept, tuned numbers of kernels (default: experience in --data-dir)"
    solve.add_argument("--experience", type=Path, metavar="DIR", help=kept)
    solve.add_argument("--no-experience", action="store_true", help="start without it, and record nothing")
    solve.add_argument("--on-model-failure", choices=["stop", "wait"], default="stop", help=waiting)
    asked = "if a request waits for a person's reply: wait (default), or leave it in DIR/requests, give the device back and exit with code 5"
    solve.add_argument("--when-asked", choices=["wait", "pause"], help=asked)
    solve.add_argument("--resume", action="store_true", help="continue interrupted runs in --out; finished runs do not change")
    solve.add_argument("--data-dir", type=Path, metavar="DIR", help="the verifier's build cache (default: stitchwork in the user's cache folder)")
    solve.add_argument("--json", action="store_true", help="print the summaries as JSON instead of the table")
    solve.add_argument("--quiet", action="store_true", help="no progress on stderr")

    shown = commands.add_parser("show", help="print a run from its directory")
    shown.add_argument("directory", type=Path, metavar="DIR")
    shown.add_argument("--events", action="store_true", help="the conversation, line by line, with the numbers of the events")
    shown.add_argument("--json", action="store_true", help="the summary as JSON")

    steering.add_commands(commands)
    add_answer(commands)
    earned.add_commands(commands)
    arena.add_commands(commands)
    add_commands(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    args = parser().parse_args(arguments)
    try:
        if hasattr(args, "act"):
            return int(args.act(args))
        if args.command == "solve":
            return asyncio.run(solve(args))
        return show_run(args)
    except (Unusable, TraceDamaged) as error:
        say(f"agents: {error}")
        return USAGE
    except (KeyboardInterrupt, asyncio.CancelledError):
        again = f" Continue with the same command and --resume; finished work is in {args.out}." if args.command == "solve" else ""
        say(f"agents: interrupted.{again}")
        return INTERRUPTED


async def solve(args: argparse.Namespace) -> int:
    tasks = find_tasks(args.tasks)
    if args.workflow == OWN_PROGRAM.name and args.program is None:
        raise Unusable(f"--workflow {args.workflow} needs --program FILE")
    folders = {path: args.out if len(tasks) == 1 else args.out / name for path, name in tasks.items()}
    for folder in folders.values():
        if (folder / TRACE).exists() and not args.resume:
            raise Unusable(f"{folder} already holds a run: continue it with --resume, or choose another --out")
    for option in ("documents", "learn_from"):
        if getattr(args, option) is not None and not getattr(args, option).is_dir():
            raise Unusable(f"--{option.replace('_', '-')} {getattr(args, option)} is not a folder")
    if not args.resume:
        settings_from(args)  # before the verifier starts
    devices = await devices_for(args, folders.values())
    loop = asyncio.get_running_loop()
    me = asyncio.current_task()
    with suppress(NotImplementedError):
        if me is not None:
            loop.add_signal_handler(signal.SIGTERM, me.cancel)

    client = open_devices(devices, lambda device: open_verifier(device, args.data_dir or default_data_dir()))
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
        if any(s.usage for s in summaries.values()):
            print(show.cost_of(list(summaries.values())))
    codes = [EXIT.get(s.outcome, 1) for s in summaries.values()]
    return next((code for code in (1, 5, 3, 4) if code in codes), 0)


async def devices_for(args: argparse.Namespace, folders: Iterable[Path]) -> str:
    """Returns the named devices. A resumed run keeps the devices on which it began. Raises `Unusable` if the named devices are of a different
    kind."""
    for folder in folders:
        begun = await FileJournal(folder, owner=False).load() if (folder / TRACE).exists() else []
        if not begun or begun[0].of(RunStarted) is None:
            continue
        device = settings_by_fork(begun)[-1][1].device
        if args.device is None:
            return device
        if args.device.partition(":")[0] != device.partition(":")[0]:
            raise Unusable(f"{folder} holds a run on {device}: it cannot continue on {args.device}. Leave --device out, or name one of that kind")
    return devices_from(args)


async def solve_one(args: argparse.Namespace, path: Path, name: str, folder: Path, client: Client) -> Summary:
    """Executes one run in `folder`: a new run, or one that is resumed with the settings, task and program recorded at the start of its trace."""
    journal = FileJournal(folder)
    begun = await journal.load()
    if begun and (started := begun[0].of(RunStarted)) is not None:
        settings = settings_by_fork(begun)[-1][1]
        source = (await journal.get(artefact(started.source))).decode()
        name = started.task.name
        program = (await journal.get(started.program.sha)).decode() if started.program else None
        if project(begun).state == "paused":
            await journal.append([steering.control("resume")])
    else:
        source, settings = read_source(path), settings_from(args)
        program = read_source(args.program) if settings.workflow == OWN_PROGRAM.name else None
    engine = Engine(
        journal,
        LocalVerifier(journal, client, settings.device),
        settings,
        source,
        name,
        FUNCTIONS[settings.workflow],
        roles_for,
        program_source=program,
        models=models_for(args, folder),
        on_pause="stop" if pauses(args, folder) else args.on_model_failure,
        library=FolderLibrary(args.documents) if args.documents else None,
        inspirations=FolderInspirations(args.learn_from) if args.learn_from else None,
        experience=None if args.no_experience else FolderExperience(args.experience or (args.data_dir or default_data_dir()) / "experience"),
        split=Split(tasks=frozenset(sha256(read_source(task)) for task in find_tasks(args.tasks))),  # no transfer of lessons between these tasks
    )
    progress = None if args.quiet else Progress(journal, len(begun))
    try:
        summary = await engine.execute()
        write_results(folder, summary)
        if summary.state == "paused":
            say(f"agents: {folder} is paused. {show.why_paused(summary)}")
        return summary
    finally:
        if progress is not None:
            await progress.stop()


def pauses(args: argparse.Namespace, folder: Path) -> bool:
    """Returns whether the process writes a request to a file and exits. A run that began in this mode stays in it."""
    return args.when_asked == "pause" or (args.when_asked is None and (folder / REQUESTS).is_dir())


def models_for(args: argparse.Namespace, folder: Path) -> Models:
    if not pauses(args, folder):
        return open_models(os.environ)
    (folder / REQUESTS).mkdir(parents=True, exist_ok=True)
    return open_models(os.environ, FileMailbox(folder / REQUESTS, folder), wait=False)


def say(line: str) -> None:
    with suppress(OSError, ValueError):  # the reader has closed the pipe (`2>&1 | head`)
        print(line, file=sys.stderr, flush=True)


class Progress:
    """Prints events as they are appended to a journal. The run's own events are printed immediately, because planning keeps the event loop busy.
    Events from other writers (`steer`) are printed at the next poll."""

    def __init__(self, journal: FileJournal, seen: int):
        self.journal, self.seen = journal, seen
        journal.on_append = self._print
        self._task = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        async for _ in self.journal.wakeups():
            self._print()

    def _print(self) -> None:
        for event in self.journal.events_after(self.seen):
            self.seen = event.seq
            with suppress(Exception):  # an event that cannot be displayed (from another writer) must not end the run
                if line := show.line(event):
                    say(line)

    async def stop(self) -> None:
        self._task.cancel()
        self._print()


def show_run(args: argparse.Namespace) -> int:
    if not (args.directory / TRACE).exists():
        raise Unusable(f"{args.directory} holds no {TRACE}")
    events, _ = sound.read(args.directory)
    summary = project(events)
    if args.json:
        print(summary.model_dump_json(indent=1, exclude={"queued_at"}))
        return 0
    if args.events:
        print("\n".join(f"{event.seq:>5} {text}" for event in events if (text := show.line(event))))
        print()
    print(show.page(summary))
    return 0
