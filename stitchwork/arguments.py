"""Defines the command line's arguments."""

from __future__ import annotations

import argparse
from pathlib import Path

from stitchwork import __version__
from stitchwork.choices import DEFAULT, PARALLEL, SEARCHES, USUAL, WORKFLOWS

PRECISIONS = ("fp32-strict", "tf32", "bf16", "fp16")
EPILOGUE = """
exit codes: 0 done (verify: passed, and fast enough; submit --follow and follow: a program passed); 1 it did not; 2 it could not be done
(arguments, connection, the token, the host); 3 out of budget; 4 cancelled; 130 interrupted. With --json the result goes to stdout as JSON,
everything else to stderr. STITCHWORK_URL and STITCHWORK_TOKEN take precedence over the saved login.
"""
EXAMPLES = {
    "verify": "stitchwork verify task.py mine.py --tier full --device cuda --min-speedup 1.0",
    "submit": "stitchwork submit model.py --device cuda --workflow stitch --minutes 20 --follow",
    "fetch": "stitchwork fetch 2f1c6a52-53a4-4c0b-8d2e-0b6c8f3f9f11 --out softmax/",
    "comments": "stitchwork comments RUN --add 'two reads of the row' --candidate 4 --line 12",
    "login": "stitchwork login https://stitchwork.example.org",
    "mcp": "stitchwork mcp                    # started by a coding agent; docs/how-to/coding-agents.md",
}


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="stitchwork", description="Fast, verified CUDA programs for PyTorch models, from a terminal or from CI.")
    top.epilog, top.formatter_class = EPILOGUE, argparse.RawDescriptionHelpFormatter
    top.add_argument("--version", action="version", version=f"stitchwork {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def command(name: str, text: str, json: bool = True) -> argparse.ArgumentParser:
        example = f"example:\n  {EXAMPLES[name]}" if name in EXAMPLES else None
        added = commands.add_parser(name, help=text, description=text, epilog=example, formatter_class=argparse.RawDescriptionHelpFormatter)
        if json:
            added.add_argument("--json", action="store_true", help="the result as JSON on stdout")
        return added

    login = command("login", "Keep the address and a token for later commands, in a file that only you can read.")
    login.add_argument("url", metavar="URL")
    login.add_argument("--token", help="default: typed at a prompt, or read from stdin; others can see a command line")
    command("logout", "Forget the address and the token.")
    verify = command("verify", "Verify a program against a task: is it correct, fast and honest?")
    verify.add_argument("task", metavar="TASK.py", help="the task's source, or the id of a task")
    verify.add_argument("program", metavar="PROGRAM.py", type=Path, help="with `class ModelNew`")
    verify.add_argument(
        "--tier", choices=("quick", "full"), default="full", help="quick: against eager only; full: every baseline, which makes it a result (default)"
    )
    verify.add_argument("--min-speedup", type=_factor, metavar="X", help="fail unless the lower bound of the speedup against eager is at least X")
    verify.add_argument("--no-wait", action="store_true", help="start it, print its id and exit")
    _measured(verify)
    submit = command("submit", "Have agents search for a faster program.")
    submit.add_argument("task", metavar="TASK.py", help="the task's source, or the id of a task")
    submit.add_argument("--follow", action="store_true", help="then follow it to its end")
    _measured(submit)
    _search(submit)
    follow = command("follow", "Follow a run: conversation and verdicts as they arrive. With --json, one event per line.")
    follow.add_argument("run", metavar="RUN")
    follow.add_argument("--after", type=int, default=0, metavar="SEQ", help="only events after this one")
    fetch = command("fetch", "Write a run's best program, report and trace into a folder; a repeated call continues where it stopped.")
    fetch.add_argument("run", metavar="RUN")
    fetch.add_argument("--out", type=Path, metavar="DIR", help="default: stitchwork-RUN")
    fetch.add_argument("--no-trace", action="store_true", help="only program and report")
    runs = command("runs", "List runs, newest first.")
    runs.add_argument("--state", choices=("queued", "running", "paused", "finished"))
    runs.add_argument("--outcome", choices=("improved", "matched", "failed", "cancelled", "out_of_budget"))
    runs.add_argument("--workflow", choices=WORKFLOWS)
    runs.add_argument("-q", metavar="WORDS", help="words of the title, the task or the person")
    runs.add_argument("-n", type=int, default=20, metavar="COUNT", help="maximum number (default 20)")
    show = command("show", "One run: settings, candidates, result.")
    show.add_argument("run", metavar="RUN")
    for name, text in (("pause", "Ask a run to pause."), ("resume", "Resume a paused run."), ("cancel", "End a run.")):
        command(name, text).add_argument("run", metavar="RUN")
    _comments(command("comments", "The team's comments on a run: read, add, reply, resolve."))
    board = command("leaderboard", "Confirmed results, ranked.")
    board.add_argument("--suite", metavar="SLUG")
    board.add_argument("--task", metavar="ID", help="single results of this task instead of the ranking")
    board.add_argument("--device", metavar="MODEL", help="device model, such as h200")
    board.add_argument("--precision", choices=PRECISIONS)
    board.add_argument("--workflow", choices=WORKFLOWS)
    board.add_argument("-n", type=int, default=50, metavar="COUNT", help="maximum number of single results (default 50)")
    command("devices", "The available devices and their queues.")
    command("doctor", "Check login, server, token and devices, and suggest what to do.")
    mcp = command("mcp", "Serve the verifier as tools for a coding agent (Model Context Protocol), over stdio.", json=False)
    mcp.add_argument("--http", type=int, metavar="PORT", help="over streamable HTTP on this machine instead, at http://127.0.0.1:PORT/mcp")
    return top


def _comments(command: argparse.ArgumentParser) -> None:
    command.add_argument("run", metavar="RUN")
    command.add_argument("--all", action="store_true", help="resolved threads as well")
    does = command.add_mutually_exclusive_group()
    does.add_argument("--add", metavar="TEXT", help='open a thread; Markdown, "-" reads stdin, @name notifies a member of the team')
    does.add_argument("--reply", nargs=2, metavar=("THREAD", "TEXT"), help="reply in a thread, by its number")
    does.add_argument("--resolve", type=int, metavar="THREAD")
    does.add_argument("--reopen", type=int, metavar="THREAD")
    place = command.add_argument_group("place", "of --add; without one it is about the run. --candidate alone also narrows the list.")
    place.add_argument("--candidate", type=int, metavar="N")
    place.add_argument("--line", type=int, metavar="L", help="of the candidate's program")
    place.add_argument("--event", type=int, metavar="SEQ", help="of the trace")


def _measured(command: argparse.ArgumentParser) -> None:
    command.add_argument("--device", default="cpu", help='"cpu" (default), "cuda" or one GPU such as "cuda:0"')
    command.add_argument("--precision", choices=PRECISIONS, default="fp32-strict")
    command.add_argument("--mode", choices=("train", "eval"), default="train", help="train() as KernelBench leaves it (default), or eval()")
    command.add_argument("--title", default="", help="shown in lists of runs")


def _search(command: argparse.ArgumentParser) -> None:
    command.add_argument("--workflow", choices=SEARCHES, default=DEFAULT)
    command.add_argument("--llm", metavar="PROFILE", help="for all roles; default: the built-in compiler, which needs no model")
    for role in ("planner", "coder", "judge"):
        command.add_argument(f"--{role}", metavar="PROFILE", help="for this role only")
    command.add_argument("--language", choices=("cuda", "triton", "cpp"))
    command.add_argument("--target", type=_factor, metavar="X", help="stop at this lower bound of the speedup")
    several = f"{', '.join(PARALLEL[:-1])} and {PARALLEL[-1]}"
    command.add_argument("--workers", type=int, default=4, metavar="N", help=f"branches at once in {several}, 1 to 16 (default 4)")
    command.add_argument("--review-plan", action="store_true", help="pause after the plan until someone has reviewed it")
    limits = command.add_argument_group("budget")
    limits.add_argument("--candidates", type=int, default=USUAL["candidates"], help="programs (default %(default)g)")
    limits.add_argument("--calls", type=int, help="calls of models")
    limits.add_argument("--tokens", type=int)
    limits.add_argument("--dollars", type=float)
    limits.add_argument("--minutes", type=float, default=(USUAL["seconds"] or 0) / 60, help="from start to end (default %(default)g)")
    limits.add_argument("--verifier-minutes", type=float, default=(USUAL["verifier_seconds"] or 0) / 60, help="on a verifier (default %(default)g)")


def _factor(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError("a factor above 0")
    return value
