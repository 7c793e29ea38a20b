"""Control requests for a run in a directory: pause, resume, cancel, a note, another plan, more budget, a fork."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from agents import forking, orders
from agents.arguments import Subcommands, Unusable, add_limits, add_settings, limits_from, settings_from
from agents.events import Event, NewEvent
from agents.journal import ARTEFACTS, TRACE, FileJournal, PayloadTooLarge, write_trace
from agents.notes import MAX_NOTE, TO
from agents.payloads import ControlRequested, NoteAdded, PlanEdited
from agents.plan_edits import PlanRefused, edited_plan
from agents.projection import project

BY = "the command line"
REFUSED = "refusal"


def add_commands(commands: Subcommands) -> None:
    """Adds the subcommands. Each sets `act`, which takes the arguments and returns the exit code."""
    control = commands.add_parser("control", help="pause, resume or cancel a run")
    control.add_argument("directory", type=Path, metavar="DIR")
    control.add_argument("action", choices=["pause", "resume", "cancel"])
    control.set_defaults(act=lambda args: asyncio.run(ask(args.directory, args.action)))

    note = commands.add_parser(
        "note",
        help="send a note to an agent: it goes into that role's next prompt, once",
        description=f"A role that a model plays reads any note. The built-in compiler does not read prose; it obeys {orders.FORMS}.",
    )
    note.add_argument("directory", type=Path, metavar="DIR")
    note.add_argument("text", metavar="TEXT")
    note.add_argument("--to", choices=TO, default="all", help="default: all, each once")
    note.set_defaults(act=lambda args: asyncio.run(send_note(args.directory, args.text, args.to)))

    plan = commands.add_parser("plan", help="print the plan as JSON, or replace it with an edited one before coding")
    plan.add_argument("directory", type=Path, metavar="DIR")
    plan.add_argument("--edit", type=Path, metavar="FILE", help="JSON with `summary` and `steps`, as this command prints it")
    plan.set_defaults(act=lambda args: asyncio.run(edit_plan(args.directory, args.edit)))

    more = commands.add_parser("raise-budget", help="raise limits of a running run; continue an ended one with `fork --at refusal`")
    more.add_argument("directory", type=Path, metavar="DIR")
    add_limits(more, defaults=False)
    more.set_defaults(act=lambda args: asyncio.run(ask(args.directory, "raise-budget", limits=some(limits_from(args)))))

    fork = commands.add_parser(
        "fork",
        help="start a new run with the events of another up to one of them, and other settings from there on",
        description="Settings that are not given stay unchanged. Continue the new run with `solve` and --resume.",
    )
    fork.add_argument("directory", type=Path, metavar="DIR")
    fork.add_argument("--at", required=True, metavar="SEQ", help=f'an event\'s number; "{REFUSED}": where the budget first refused a call')
    fork.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the new run")
    add_settings(fork, fork=True)
    fork.set_defaults(act=fork_run)


def some(limits: dict[str, Any]) -> dict[str, Any]:
    if not limits:
        raise Unusable("name a limit, such as --budget-calls 40")
    return limits


async def ask(directory: Path, action: str, **arguments: Any) -> int:
    journal, events = await opened(directory)
    await journal.append([control(action, **arguments)])
    if action == "resume" and project(events).state == "paused":
        print("agents: a process that waits for this run continues; if there is none, continue the run with solve and --resume", file=sys.stderr)
    return 0


def control(action: str, **arguments: Any) -> NewEvent:
    return NewEvent.of(ControlRequested(action=action, by=BY, **arguments), agent="person")


async def send_note(directory: Path, text: str, to: str) -> int:
    if not text.strip() or len(text) > MAX_NOTE:
        raise Unusable(f"a note has 1 to {MAX_NOTE} characters; this one has {len(text)}")
    journal, events = await opened(directory)
    try:
        orders.check(forking.settings_of(events), to, text)
    except (orders.NotAnOrder, forking.ForkRefused) as error:
        raise Unusable(str(error)) from None
    await journal.append([NewEvent.of(NoteAdded(to=to, text=text.strip(), by=BY), agent="person")])
    return 0


async def edit_plan(directory: Path, file: Path | None) -> int:
    journal, events = await opened(directory, finished=file is None)
    summary = project(events)
    if summary.plan is None:
        raise Unusable("this run has no plan yet")
    if file is None:
        print(json.dumps(summary.plan.written(), indent=1, ensure_ascii=False))
        return 0
    if summary.candidates:
        raise Unusable("the programs already follow the plan: fork the run at the plan (`fork --at SEQ --review-plan`), then edit it there")
    try:
        edited = edited_plan(summary.plan.written(), json.loads(file.read_text()))
        await journal.append([NewEvent.of(PlanEdited.model_validate({**edited, "by": BY}), agent="person")])
    except (OSError, ValueError, PlanRefused, PayloadTooLarge) as error:
        raise Unusable(f"{file}: {error}") from None
    return 0


async def opened(directory: Path, *, finished: bool = False) -> tuple[FileJournal, list[Event]]:
    """Returns the run's journal, opened without taking ownership from the process that executes the run."""
    if not (directory / TRACE).exists():
        raise Unusable(f"{directory} holds no {TRACE}")
    journal = FileJournal(directory, owner=False)
    events = await journal.load()
    if not finished and project(events).state == "finished":
        raise Unusable("this run has finished; `fork` starts a new one from any of its events")
    return journal, events


def fork_run(args: argparse.Namespace) -> int:
    _, events = asyncio.run(opened(args.directory, finished=True))
    if (args.out / TRACE).exists():
        raise Unusable(f"{args.out} already holds a run: choose another --out")
    try:
        settings = settings_from(args, forking.settings_of(events))
        inherited, event = forking.fork(events, _seq(args.at, events), settings, by=BY)
    except forking.ForkRefused as error:
        raise Unusable(str(error)) from None
    (args.out / ARTEFACTS).mkdir(parents=True, exist_ok=True)
    for path in (args.directory / ARTEFACTS).iterdir():
        if len(path.name) == 64:
            shutil.copyfile(path, args.out / ARTEFACTS / path.name)
    write_trace(args.out, inherited, ())
    asyncio.run(FileJournal(args.out, owner=False).append([event]))
    print(f"{args.out} holds {len(inherited)} events of {args.directory}; continue with: python -m agents solve TASK --out {args.out} --resume")
    return 0


def _seq(at: str, events: list[Event]) -> int:
    if at == REFUSED:
        found = forking.refusal(events)
        if found is None:
            raise Unusable("the budget never refused a call of this run: name an event")
        return found
    if not at.isdigit():
        raise Unusable(f'--at is the number of an event, or "{REFUSED}"; {at!r} is neither')
    return int(at)
