"""Handles notes for the built-in roles: at sequential points of a workflow, they check for orders and report which ones they follow."""

from __future__ import annotations

from agents.events import Agent
from agents.orders import compiled, found
from agents.roles.situation import Situation
from agents.span import Span


async def heed(span: Span, situation: Situation, speaker: Agent) -> None:
    """Reads the orders that people have given since the last call. Parallel workers must not call this, because the result would depend on their
    timing."""
    roles, said = compiled(span.run.settings), []
    for note in await span.orders(roles) if roles else ():
        done = [situation.orders.obey(order) for order in found(note["text"])]
        if done:
            said.append(f"As {note['by'] or 'a note'} asked: {'; '.join(done)}.\n")
    if said:
        await span.say(speaker, *said)
