"""`python -m agents llm check|list` and `python -m agents cassette`; `manage.py llm_check` does the same as the first."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from agents.arguments import Subcommands
from agents.journal import TRACE, FileJournal, TraceDamaged, write_trace
from agents.llm.cassette import append, exchanges_of
from agents.llm.check import Trial, report, try_profile
from agents.llm.errors import ModelFailure
from agents.llm.mailbox import MailboxStore
from agents.llm.models import Models, open_models
from agents.llm.profiles import ServerProfile

FAILED, USAGE = 1, 2
CHECK_EPILOG = """exit codes:
  0  every tested profile works    1  a tested profile fails    2  no profiles, a file that cannot be used, or an unknown name"""

REPLAY_EPILOG = """exit codes:
  0  the same, event for event    1  it differs; the first difference is shown    2  not a run that can be replayed"""


def add_commands(commands: Subcommands) -> None:
    """Adds the subcommands. Each sets `act`, which takes the arguments and returns the exit code."""
    llm = commands.add_parser("llm", help="language models: list the profiles, test one").add_subparsers(dest="what", required=True)
    listed = llm.add_parser("list", help="the profiles of STITCHWORK_LLM_PROFILES, or of DATA_DIR/llm.toml")
    listed.add_argument("--json", action="store_true")
    listed.set_defaults(act=lambda args: show_list(as_json=args.json))
    checked = llm.add_parser(
        "check",
        help="ask each profile for one word: speed, usage, cost, or what is wrong",
        epilog=CHECK_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_check_arguments(checked)
    checked.set_defaults(act=lambda args: check(args.profiles, as_json=args.json))

    cassette = commands.add_parser("cassette", help="export the exchanges with models of a run, so that it can be played again")
    cassette.add_argument("directory", type=Path, metavar="RUN_DIR", help="a run's directory (solve --out, manage.py export_trace)")
    cassette.add_argument("--out", type=Path, required=True, metavar="FILE", help="a new JSONL file, for a profile of kind cassette")
    cassette.set_defaults(act=lambda args: export(args.directory, args.out))

    played = commands.add_parser(
        "replay",
        help="play a run again over the replies and verdicts in its trace, and compare it event for event",
        epilog=REPLAY_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    played.add_argument("directory", type=Path, metavar="RUN_DIR")
    played.add_argument("--out", type=Path, metavar="DIR", help="write the replay's own trace here")
    played.set_defaults(act=lambda args: play(args.directory, args.out))


def add_check_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("profiles", nargs="*", metavar="PROFILE", help="which (default: all)")
    parser.add_argument("--json", action="store_true", help="a JSON list of what was found")


def show_list(*, as_json: bool = False) -> int:
    models = open_models(os.environ)
    if (code := _unusable(models)) is not None:
        return code
    rows = []
    for name, profile in models.profiles().items():
        row = {"profile": name, "kind": profile.kind}
        if isinstance(profile, ServerProfile):
            missing = profile.api_key_env is not None and not os.environ.get(profile.api_key_env, "").strip()
            key = f"{profile.api_key_env} is not set" if missing else f"key in {profile.api_key_env}" if profile.api_key_env else "no key"
            row |= {"model": profile.model, "base_url": profile.base_url, "key": key, "prices": "known" if profile.prices else "unknown"}
        elif profile.kind == "cassette":
            row |= {"file": profile.file, "record": profile.record}
        rows.append(row)
    if as_json:
        print(json.dumps(rows, indent=1))
        return 0
    for row in rows:
        rest = ", ".join(f"prices {v}" if k == "prices" else str(v) for k, v in row.items() if k not in ("profile", "kind") and v is not None)
        print(f"{row['profile']} ({row['kind']})" + (f": {rest}" if rest else ""))
    return 0


def check(names: Sequence[str] = (), *, as_json: bool = False, store: MailboxStore | None = None) -> int:
    models = open_models(os.environ, store)
    if (code := _unusable(models)) is not None:
        return code
    unknown = [name for name in names if not models.known(name)]
    if unknown:
        print(f"llm: there is no profile {', '.join(unknown)} in {models.file}; there are: {', '.join(models.profiles())}", file=sys.stderr)
        return USAGE

    async def all_of_them() -> list[Trial]:
        return [await try_profile(models, name) for name in names or models.profiles()]

    trials = asyncio.run(all_of_them())
    print(json.dumps([trial.model_dump() for trial in trials], indent=1) if as_json else report(trials))
    return 0 if all(trial.ok for trial in trials) else FAILED


def export(directory: Path, out: Path) -> int:
    try:
        if not (directory / TRACE).exists():
            raise ModelFailure("configuration", f"{directory} holds no {TRACE}")
        if out.exists():
            raise ModelFailure("configuration", f"{out} is there already", "choose another --out")
        exchanges = [exchange for _, exchange in asyncio.run(exchanges_of(FileJournal(directory, owner=False)))]
        if not exchanges:
            raise ModelFailure("configuration", f"{directory} holds no exchange with a model", "its roles were built-in")
        append(out, exchanges)
    except (ModelFailure, TraceDamaged, OSError, ValueError) as error:
        print(f"cassette: {error}", file=sys.stderr)
        return USAGE
    profiles = ", ".join(sorted({exchange.profile for exchange in exchanges}))
    print(f"{out}: {len(exchanges)} exchanges of {profiles}")
    return 0


def play(directory: Path, out: Path | None) -> int:
    from agents.replaying import NotReplayable, replay  # the engine is slow to load, so only this command imports it

    try:
        if not (directory / TRACE).exists():
            raise NotReplayable(f"{directory} holds no {TRACE}")
        if out is not None and (out / TRACE).exists():
            raise NotReplayable(f"{out} already holds a trace: choose another --out")
        begun = time.monotonic()
        outcome = asyncio.run(replay(FileJournal(directory, owner=False)))
        if out is not None:
            write_trace(out, outcome.journal.events, list(outcome.journal.artefacts.items()))
    except (NotReplayable, TraceDamaged, OSError, ValueError) as error:
        print(f"replay: {error}", file=sys.stderr)
        return USAGE
    played = f"{outcome.exchanges} exchanges and {outcome.verifications} jobs played in {time.monotonic() - begun:.1f} s"
    print(f"differs: {outcome.difference} ({played})" if outcome.difference else f"the same: {outcome.events} events ({played})")
    return FAILED if outcome.difference else 0


def _unusable(models: Models) -> int | None:
    profiles = models.profiles()
    if models.problem:
        print(f"llm: {models.problem}", file=sys.stderr)
    elif models.file is None:
        print(
            "llm: no model is configured; write llm.toml into DATA_DIR, or set STITCHWORK_LLM_PROFILES (docs/how-to/language-models.md)",
            file=sys.stderr,
        )
    elif not profiles:
        print(f"llm: {models.file} holds no profile; begin one with [profiles.NAME]", file=sys.stderr)
    else:
        return None
    return USAGE
