"""The team's comments on a run, from a terminal."""

from __future__ import annotations

import argparse
import sys
import textwrap
from typing import Any

from stitchwork.api import Api
from stitchwork.figures import ago
from stitchwork.terminal import clean

Json = dict[str, Any]

WIDTH = 100


class NoPlace(Exception):
    """Raised if the requested place or thread does not exist. The message says what to do."""


def changes(options: argparse.Namespace) -> bool:
    return any(value is not None for value in (options.add, options.reply, options.resolve, options.reopen))


def threads(api: Api, run: str, options: argparse.Namespace) -> list[Json]:
    """Returns all threads, or those of one candidate if one is named. Open threads come first, ordered by their last change."""
    if options.line is not None or options.event is not None:
        raise NoPlace("--line and --event say where to --add; `stitchwork comments RUN` shows the numbers")
    asked: Json = {"candidate": options.candidate, "resolved": None if options.all else "false"}
    found: list[Json] = []
    after: int | None = 0
    while after is not None:
        answer = api.get(f"/runs/{run}/comments", **asked, after=after)
        found += answer["threads"]
        after = answer["next"]
    return sorted(found, key=lambda thread: thread["resolved"])


def change(api: Api, run: str, options: argparse.Namespace) -> Json:
    """Opens, answers, resolves or reopens a thread. Returns the updated thread."""
    base = f"/runs/{run}/comments"
    if options.add is not None:
        return api.post(base, {"text": _words(options.add), "place": _place(options)})
    if options.reply is not None:
        thread, text = options.reply
        if not thread.isdecimal():
            raise NoPlace(f"{thread!r} is not a thread: `stitchwork comments RUN` shows their numbers")
        return api.post(f"{base}/{thread}/replies", {"text": _words(text)})
    thread = options.resolve if options.resolve is not None else options.reopen
    return api.post(f"{base}/{thread}/resolution", {"resolved": options.resolve is not None})


def _words(text: str) -> str:
    return sys.stdin.read() if text == "-" else text


def _place(options: argparse.Namespace) -> Json:
    if options.event is not None:
        if options.candidate is not None or options.line is not None:
            raise NoPlace("give one place: --event, or --candidate with or without --line")
        return {"kind": "event", "seq": options.event}
    if options.line is not None and options.candidate is None:
        raise NoPlace("--line needs --candidate: a line belongs to a candidate's program")
    if options.candidate is None:
        return {"kind": "run"}
    line = {"kind": "line", "line": options.line} if options.line is not None else {"kind": "candidate"}
    return line | {"candidate": options.candidate}


def text(found: list[Json], with_resolved: bool) -> str:
    if not found:
        return "no comments" if with_resolved else "no open comments; --all shows those that are resolved"
    return "\n\n".join(thread_text(thread) for thread in found)


def thread_text(thread: Json) -> str:
    resolved = f", resolved by {clean(thread['resolved_by'] or '')}" if thread["resolved"] else ""
    lines = [f"{thread['id']}  on {clean(thread['on'])}{resolved}  {thread['page']}"]
    code = thread["anchor"].get("text")
    if code:
        lines.append(f"    > {clean(code).strip()[:WIDTH]}")
    for comment in thread["comments"]:
        edited = ", edited" if comment["edited_at"] and not comment["deleted"] else ""
        lines.append(f"    {clean(comment['author'])}, {ago(comment['at'])}{edited}:")
        said = "(deleted)" if comment["deleted"] else comment["text"]
        for line in said.splitlines():
            lines += [f"      {part}" for part in textwrap.wrap(clean(line), WIDTH)] or [""]
    return "\n".join(lines)
