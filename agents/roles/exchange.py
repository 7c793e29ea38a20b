"""Asks a model a question until it gets a usable reply. An unusable reply is sent back with the exact error, at most twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from agents.events import Agent
from agents.llm.messages import Message, Reply, Request
from agents.roles.prompts import prompt
from agents.roles.replies import FORMS, UnusableReply
from agents.roles.situation import Unusable
from agents.span import Span

T = TypeVar("T")

REPLIES = 3  # the first reply and two corrections
SHOWN_REPLY = 24_000  # maximum length, in characters, of a reply that is sent back to its author


async def converse(span: Span, agent: Agent, profile: str, purpose: str, values: Mapping[str, str], read: Callable[[Reply], T]) -> T:
    """Returns the result of calling `read` on the model's reply to the prompt named `purpose`. `values` may contain more than the prompt's variables.

    `read` raises `UnusableReply` for an unusable reply. Raises `Unusable` after the last correction, and `OutOfBudget` before a call that exceeds the
    budget.
    """
    asked = prompt(purpose)
    first = asked.messages({name: values[name] for name in asked.variables})
    messages, sent_as = first, purpose
    problem = ""
    for number in range(1, REPLIES + 1):
        reply = await span.ask(agent, profile, Request(messages=messages, purpose=sent_as))
        try:
            return read(reply)
        except UnusableReply as refused:
            problem = str(refused)
        left = REPLIES - 1 - number
        if number < REPLIES:
            again = {"asked": purpose, "problem": problem, "form": FORMS[asked.reply], "left": chances(left)}
            mended = prompt("any/reply").messages(again)
            messages = [*first, Message(role="assistant", content=shown(reply.text)), *mended]
            sent_as = f"{purpose.partition('/')[0]}/reply"
    raise Unusable(f"{purpose}: {REPLIES} replies could not be used; the last one: {problem}")


def chances(left: int) -> str:
    return "If this reply cannot be used either, the attempt counts as failed." if left <= 0 else ""


def shown(text: str) -> str:
    """Returns a reply as it is sent back to its author. The result is never empty, because servers refuse empty messages."""
    if not text.strip():
        return "(an empty reply)"
    if len(text) <= SHOWN_REPLY:
        return text
    half = SHOWN_REPLY // 2
    return f"{text[:half]}\n\n[... {len(text) - 2 * half} characters left out ...]\n\n{text[-half:]}"


async def notes_for(span: Span, agent: Agent) -> str:
    """Returns the notes that people have written to this role since its last prompt, as a list. Each note is delivered once."""
    return "\n".join(f"- {note}" for note in await span.notes(agent))
