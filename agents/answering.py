"""Handles replies to requests that a run has left in files (`solve --when-asked pause`).

Lists the pending requests and checks that a text is a valid reply to one of them.
"""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

from pydantic import BaseModel

from agents.arguments import Subcommands, Unusable
from agents.events import Event
from agents.journal import TRACE, FileJournal
from agents.llm.mailbox import LONGEST_REPLY, FileMailbox, NotWaiting, Waiting
from agents.llm.messages import Reply
from agents.payloads import LlmCompleted
from agents.projection import project
from agents.roles.prompts import prompt
from agents.roles.replies import DiagnosisReply, IdeaReply, IdeasReply, JudgementReply, PlanReply, UnusableReply, find_object

REQUESTS = "requests"  # subdirectory of a run's directory
SCHEMAS: dict[str, type[BaseModel]] = {
    "plan": PlanReply,
    "ideas": IdeasReply,
    "idea": IdeaReply,
    "diagnosis": DiagnosisReply,
    "judgement": JudgementReply,
}
PROGRAM = "program"


def add_answer(commands: Subcommands) -> None:
    answered = commands.add_parser(
        "answer",
        help="reply to a request that a run left (solve --when-asked pause), from standard input",
        description="Without REQUEST: list pending requests. A reply that is empty, truncated, for another request, or a second one is refused.",
    )
    answered.add_argument("directory", type=Path, metavar="DIR", help="the run's directory (solve --out)")
    answered.add_argument("request", nargs="?", metavar="REQUEST", help="its name, as shown by the pause, or its file")
    answered.set_defaults(act=lambda args: act(args.directory, args.request))


def act(directory: Path, request: str | None) -> int:
    if not (directory / TRACE).exists():
        raise Unusable(f"{directory} holds no {TRACE}")
    if request is None:
        waiting = asyncio.run(waiting_in(directory))
        print("\n".join(f"{name_of(one)}  {one.request.purpose}, since {one.asked_at}" for one in waiting) or "no request waits for a reply")
        return 0
    data = sys.stdin.buffer.read(LONGEST_REPLY + 1)
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise Unusable(f"byte {error.start + 1} of the reply is not UTF-8: save it as UTF-8 text") from None
    if len(data) > LONGEST_REPLY:
        raise Unusable(f"the reply is longer than {LONGEST_REPLY >> 20} MiB: send the model's answer alone")
    taken = asyncio.run(answer(directory, request, text))
    print(f"{name_of(taken)} has its reply; continue with: python -m agents solve TASK --out {directory} --resume", file=sys.stderr)
    return 0


async def answer(directory: Path, request: str, text: str) -> Waiting:
    """Stores a reply next to its request. If the text is not a valid reply, writes nothing and raises `Unusable` with an explanation."""
    events = await FileJournal(directory, owner=False).load()
    if project(events).state == "finished":
        raise Unusable("this run has finished: none of its requests waits for a reply")
    waiting = await waiting_in(directory, events)
    wanted = plain(request)
    found = next((one for one in waiting if name_of(one) == wanted), None)
    if found is None:
        raise Unusable(why_not_waiting(directory, events, wanted, waiting))
    if problem := amiss(found, text):
        raise Unusable(f"{problem} Nothing was written: {wanted} still waits.")
    try:
        await FileMailbox(directory / REQUESTS, directory).answer(found.id, text)
    except NotWaiting:
        raise Unusable(f"{wanted} already has a reply; a second one is not accepted") from None
    return found


async def waiting_in(directory: Path, events: list[Event] | None = None) -> list[Waiting]:
    """Returns the run's pending requests, oldest first. Omits requests that the run has already moved past."""
    events = events if events is not None else await FileJournal(directory, owner=False).load()
    ended = {done.key for event in events if (done := event.of(LlmCompleted)) is not None}
    run = events[-1].run if events else ""
    return [one for one in await FileMailbox(directory / REQUESTS, directory).list() if one.key not in ended and one.run == run]


def name_of(waiting: Waiting) -> str:
    return waiting.id.rpartition("/")[2]


def plain(request: str) -> str:
    """Returns the short name of a request, taken from its id or from the path of one of its files."""
    return re.sub(r"(?:\.reply)?\.(?:md|txt|json)$", "", request.rstrip("/").rpartition("/")[2])


def why_not_waiting(directory: Path, events: list[Event], wanted: str, waiting: list[Waiting]) -> str:
    """Explains in one sentence why a request is not pending: it has been answered, the run has moved past it, or there is no request with that
    name."""
    there = ", ".join(map(name_of, waiting)) or "none"
    files = list((directory / REQUESTS).glob(f"*/{wanted}.json"))
    if not files:
        return f"there is no request {wanted} in {directory}; waiting: {there}"
    asked = Waiting.model_validate_json(files[0].read_bytes())
    if any((done := event.of(LlmCompleted)) is not None and done.key == asked.key for event in events):
        return f"{wanted} is stale: the run has its answer and has continued; waiting: {there}"
    if any(files[0].with_name(wanted + end).exists() for end in (".reply.md", ".reply.txt")):
        return f"{wanted} already has a reply, which the run uses with --resume; a second one is not accepted"
    return f"{wanted} is stale: it was asked before this run was forked; waiting: {there}"


def amiss(waiting: Waiting, text: str) -> str:
    """Explains in one sentence why a text cannot be the reply to a request. Returns "" if it can. The run itself reports any other error and repeats
    the request."""
    if not text.strip():
        return "The reply is empty: send the model's answer."
    wanted = form_of(waiting)
    if said := cut_off(text, wanted):
        return said
    given = forms_in(text)
    if wanted and given and wanted not in given:
        what = " or ".join(sorted(given))
        return f"This is a {what}, and {name_of(waiting)} asks for a {wanted} ({waiting.request.purpose}): it seems to be meant for another request."
    return ""


def form_of(waiting: Waiting) -> str:
    """Returns the kind of reply that a request calls for ("plan", "program", ...), or "" if the kind is unknown. A repeated request names the kind
    explicitly."""
    purpose = waiting.request.purpose
    if purpose.endswith("/reply"):
        found = re.search(r"^Asked: (\S+)$", waiting.request.messages[-1].content, re.MULTILINE)
        purpose = found[1] if found else ""
    try:
        return prompt(purpose).reply
    except (LookupError, ValueError, OSError):
        return ""


def cut_off(text: str, wanted: str) -> str:
    """If a reply is cut off inside a fence, a block or its JSON, explains this in one sentence. Otherwise returns ""."""
    if _open_fence(text):
        return "The reply seems to be cut off: it opens a code fence and does not close it."
    if text.count("<<<<<<< SEARCH") != text.count(">>>>>>> REPLACE"):
        return "The reply seems to be cut off: a SEARCH block has no end."
    if wanted in SCHEMAS and wanted not in forms_in(text) and text.count("{") > text.count("}"):
        return "The reply seems to be cut off: its JSON object has no end."
    return ""


def _open_fence(text: str) -> bool:
    """Returns whether a code fence is still open at the end of the text. A fence of four backticks may contain lines that start with three."""
    open_by = ""
    for line in text.splitlines():
        found = re.match(r"[ \t]*(`{3,}|~{3,})[ \t]*(\S*)", line)
        if found is None:
            continue
        if not open_by:
            open_by = found[1]
        elif found[1][0] == open_by[0] and len(found[1]) >= len(open_by) and not found[2]:
            open_by = ""
    return bool(open_by)


def forms_in(text: str) -> set[str]:
    """Returns the kinds of reply that a piece of text could represent."""
    found = set()
    if re.search(r"\bclass\s+ModelNew\b", text) or "<<<<<<< SEARCH" in text:
        return {PROGRAM}
    for form, schema in SCHEMAS.items():
        required = {name for name, field in schema.model_fields.items() if field.is_required()}
        try:
            value = find_object(Reply(text=text), tuple(schema.model_fields))
        except UnusableReply:
            continue
        if required <= set(value):
            found.add(form)
    return found
