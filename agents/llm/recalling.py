"""Restores a model's reply from the trace that recorded it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agents.llm.messages import Reply
from agents.payloads import LlmCompleted, artefact

if TYPE_CHECKING:
    from agents.ports import Journal  # for type checking only, because `agents.ports` imports this package's `messages`


async def recall(journal: Journal, done: LlmCompleted) -> Reply:
    """Returns the reply, including its reasoning."""
    reply = Reply.model_validate_json(await journal.get(artefact(done.reply)))
    if done.reasoning is not None:
        reply = reply.model_copy(update={"reasoning": (await journal.get(done.reasoning.sha)).decode()})
    return reply
