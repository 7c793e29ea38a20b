"""The `stitchwork` command."""

from __future__ import annotations

import argparse
import getpass
import json
import os
import sys
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from stitchwork import comments, doctor, lists
from stitchwork.api import Api, ApiError
from stitchwork.arguments import parser
from stitchwork.conversation import Conversation
from stitchwork.fetching import Damaged, fetch
from stitchwork.login import Login, NoLogin, clean_url, exposed, forget_login, keep_login, read_login
from stitchwork.stream import follow
from stitchwork.terminal import Terminal, clean
from stitchwork.verdict import fast_enough, headline, verdict_text

DONE, NOT_PASSED, IMPOSSIBLE, OUT_OF_BUDGET, CANCELLED, INTERRUPTED = 0, 1, 2, 3, 4, 130
EXITS = {"improved": DONE, "matched": DONE, "failed": NOT_PASSED, "out_of_budget": OUT_OF_BUDGET, "cancelled": CANCELLED}


class Unusable(Exception):
    """Raised if the arguments cannot be used. The message says what to do."""


class Left(Exception):
    """Raised if the user stops watching something that is still in progress."""


def main(argv: Sequence[str] | None = None) -> int:
    options = parser().parse_args(argv)
    try:
        return COMMANDS[options.command](options)
    except (ApiError, NoLogin, Unusable, Damaged, comments.NoPlace) as error:
        print(f"stitchwork: {error}", file=sys.stderr)
        return IMPOSSIBLE
    except Left:
        return INTERRUPTED
    except KeyboardInterrupt:
        print("\nstitchwork: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # `stitchwork runs | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE


def _api() -> Api:
    return Api(read_login())


def _print(content: Any) -> None:
    print(json.dumps(content, ensure_ascii=False, indent=1))


# --- login


def _login(options: argparse.Namespace) -> int:
    url = clean_url(options.url)
    if exposed(url):
        print(f"stitchwork: the token will travel to {url} in the clear; https:// protects it", file=sys.stderr)
    token = options.token or _asked_token(url)
    me = Api(Login(url, token, "")).get("/me")
    path = keep_login(url, token)
    if options.json:
        _print({"url": url, "file": str(path), **me})
    else:
        print(f"{me['user']} in team {me['team']['name']} ({me['team']['role']}), may {', '.join(me['scopes'])}; kept in {path}")
    return DONE


def _asked_token(url: str) -> str:
    token = getpass.getpass(f"Token (made on {url}/account/tokens/): ") if sys.stdin.isatty() else sys.stdin.readline()
    if not token.strip():
        raise Unusable("there is no token: create one on the page Account, Tokens, and enter it here")
    return token.strip()


def _logout(options: argparse.Namespace) -> int:
    there = forget_login()
    _print({"forgotten": there}) if options.json else print("forgotten" if there else "there was no login")
    return DONE


# --- verify, submit, follow


def _verify(options: argparse.Namespace) -> int:
    api = _api()
    body = _task(options.task) | {"program_source": _read(options.program), "device": options.device, "precision": options.precision}
    result = api.post("/verifications", body | {"mode": options.mode, "tier": options.tier, "title": options.title or _name(options.task)})
    if options.no_wait:
        _print(result) if options.json else print(result["id"])
        return DONE
    terminal = Terminal(sys.stderr)
    terminal.line(f"{result['id']}: {headline(result)}")
    try:
        for event in follow(api, result["id"], on_lost=_lost(terminal)):
            if event["kind"] == "verification.stage":
                _show_stage(terminal, event["payload"])
    except KeyboardInterrupt:
        terminal.close()
        raise _left(result["id"], "verification") from None
    terminal.close()
    result = api.get(f"/verifications/{result['id']}")
    slow = options.min_speedup is not None and result["passed"] and not fast_enough(result, options.min_speedup)
    if options.json:
        _print(result | ({"min_speedup": options.min_speedup, "fast_enough": not slow} if options.min_speedup is not None else {}))
    else:
        print(verdict_text(result))
        if slow:
            low = f"{result['speedup']['low']:.2f}x" if result["speedup"] else "not measured"
            print(f"too slow: the lower bound of the interval against eager is {low}, and {options.min_speedup:g}x is required")
    if result["verdict"] in ("infrastructure_error", "not_measured") and not result["problems"]:
        return IMPOSSIBLE
    return DONE if result["passed"] and not slow else NOT_PASSED


def _show_stage(terminal: Terminal, p: dict[str, Any]) -> None:
    """Prints a stage. A finished stage stays on the terminal; an unfinished one is replaced by the next output."""
    if p.get("status") in ("passed", "failed", "skipped"):
        took = f", {p['seconds']:.1f} s" if p.get("seconds") is not None else ""
        terminal.line(f"  {p.get('stage')}: {p['status']}{took}")
    else:
        terminal.status(f"  {p.get('stage')} … {clean(p.get('detail') or '')}")


def _submit(options: argparse.Namespace) -> int:
    api = _api()
    roles = {role: getattr(options, role) or options.llm or "built-in" for role in ("planner", "coder", "judge")}
    limits = {unit: getattr(options, unit) for unit in ("candidates", "calls", "tokens", "dollars")}
    limits |= {"seconds": options.minutes * 60, "verifier_seconds": options.verifier_minutes * 60}
    chosen = {name: getattr(options, name) for name in ("workflow", "device", "precision", "mode", "language", "target", "workers", "review_plan")}
    run = api.post("/runs", _task(options.task) | {"title": options.title or _name(options.task), "settings": chosen | roles | {"budget": limits}})
    if not options.follow:
        _print(run) if options.json else print(f"{run['id']}\n{run['page']}")
        return DONE
    if not options.json:
        print(run["page"], file=sys.stderr)
    return _followed(api, run["id"], 0, options.json)


def _follow(options: argparse.Namespace) -> int:
    return _followed(_api(), _run(options.run), options.after, options.json)


def _followed(api: Api, run: str, after: int, as_json: bool) -> int:
    terminal = Terminal(sys.stderr if as_json else sys.stdout)
    conversation = Conversation(terminal)
    outcome = None
    try:
        for event in follow(api, run, after, on_lost=_lost(Terminal(sys.stderr))):
            if event["kind"] == "run.finished":
                outcome = event["payload"]["outcome"]
            if as_json:
                print(json.dumps(event, ensure_ascii=False, separators=(",", ":")), flush=True)
            else:
                conversation.show(event)
    except KeyboardInterrupt:
        terminal.close()
        raise _left(run, "run") from None
    terminal.close()
    outcome = outcome or api.get(f"/runs/{run}")["outcome"]
    return EXITS.get(outcome or "", NOT_PASSED)


def _left(run: str, what: str) -> Left:
    print(f"\nthe {what} continues. Follow it again: stitchwork follow {run}; end it: stitchwork cancel {run}", file=sys.stderr)
    return Left()


def _lost(terminal: Terminal) -> Callable[[str, float], None]:
    def say(why: str, wait: float) -> None:
        if wait >= 1:
            terminal.line(f"stitchwork: the connection broke ({why}); again in {wait:g} s, nothing is lost")

    return say


# --- look, fetch, steer


def _fetch(options: argparse.Namespace) -> int:
    run = _run(options.run)
    terminal = Terminal(sys.stderr)
    folder = options.out or Path(f"stitchwork-{run[:8]}")
    written = fetch(_api(), run, folder, trace=not options.no_trace, say=terminal.status)
    terminal.close()
    if options.json:
        _print(written)
    else:
        print(f"{folder}: " + ", ".join(f"{name} {written[name]}" for name in ("best", "report", "events", "artefacts") if name in written))
        if "best" not in written:
            print("no program has passed", file=sys.stderr)
        if written["state"] != "finished":
            print(f"the run is {written['state']}: the same command later fetches the rest", file=sys.stderr)
    return DONE


def _runs(options: argparse.Namespace) -> int:
    rows = _api().pages("/runs", "runs", options.n, state=options.state, outcome=options.outcome, workflow=options.workflow, q=options.q)
    _print(rows) if options.json else print(lists.runs(rows))
    return DONE


def _show(options: argparse.Namespace) -> int:
    api, run = _api(), _run(options.run)
    detail, candidates = api.get(f"/runs/{run}"), api.get(f"/runs/{run}/candidates")["candidates"]
    _print(detail | {"candidates": candidates}) if options.json else print(lists.run(detail, candidates))
    return DONE


def _control(options: argparse.Namespace) -> int:
    answer = _api().post(f"/runs/{_run(options.run)}/control", {"action": options.command})
    _print(answer) if options.json else print(f"requested; the run was {answer['state']}, and follows at its next step")
    return DONE


def _comments(options: argparse.Namespace) -> int:
    api, run = _api(), _run(options.run)
    if comments.changes(options):
        thread = comments.change(api, run, options)
        _print(thread) if options.json else print(comments.thread_text(thread))
        return DONE
    threads = comments.threads(api, run, options)
    _print(threads) if options.json else print(comments.text(threads, options.all))
    return DONE


def _leaderboard(options: argparse.Namespace) -> int:
    chosen = {name: getattr(options, name) for name in ("suite", "device", "precision", "workflow")}
    if options.task:
        answer = _api().get("/leaderboard/results", **chosen, task=options.task, limit=options.n)
    else:
        answer = _api().get("/leaderboard", **chosen)
    _print(answer) if options.json else print(lists.results(answer) if options.task else lists.leaderboard(answer))
    return DONE


def _devices(options: argparse.Namespace) -> int:
    answer = _api().get("/devices")
    _print(answer) if options.json else print(lists.devices(answer))
    return DONE


def _doctor(options: argparse.Namespace) -> int:
    checks = doctor.examine()
    if options.json:
        _print([check.as_json() for check in checks])
    else:
        print(lists.checks(checks, Terminal()))
    return DONE if all(check.ok or not check.needed for check in checks) else IMPOSSIBLE


def _mcp(options: argparse.Namespace) -> int:
    try:
        from stitchwork.mcp_server import serve  # an optional package, which only this command needs
    except ModuleNotFoundError as error:
        raise Unusable(f"the package {error.name} is missing: pip install 'stitchwork[mcp]'") from None
    serve(read_login(), options.http)
    return DONE


# --- arguments


def _task(text: str) -> dict[str, str]:
    return {"task": text} if _is_uuid(text) else {"task_source": _read(Path(text))}


def _name(task: str) -> str:
    return "" if _is_uuid(task) else Path(task).stem.replace("_", " ")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise Unusable(f"there is no file {path}") from None
    except UnicodeDecodeError:
        raise Unusable(f"{path} is not UTF-8 text") from None
    except OSError as error:
        raise Unusable(f"{path} cannot be read: {error.strerror}") from None


def _run(text: str) -> str:
    """Returns a run's id, given on its own or as part of its page's address."""
    part = next((part for part in reversed(text.split("/")) if _is_uuid(part)), None)
    if part is None:
        raise Unusable(f"{text!r} is not a run: give its id, or the address of its page; `stitchwork runs` lists them")
    return part


def _is_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text.lower()
    except ValueError:
        return False


COMMANDS = {
    "login": _login,
    "logout": _logout,
    "verify": _verify,
    "submit": _submit,
    "follow": _follow,
    "fetch": _fetch,
    "runs": _runs,
    "show": _show,
    "pause": _control,
    "resume": _control,
    "cancel": _control,
    "comments": _comments,
    "leaderboard": _leaderboard,
    "devices": _devices,
    "doctor": _doctor,
    "mcp": _mcp,
}
