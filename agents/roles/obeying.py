"""The built-in roles at a note: they look for orders where a workflow does one thing after the other, and say what they obey."""

from __future__ import annotations

from agents.events import Agent
from agents.orders import compiled, found
from agents.roles.situation import Situation
from agents.span import Span


async def heed(span: Span, situation: Situation, speaker: Agent) -> None:
    """Reads what people ordered since the last look. Never from workers side by side: which of them comes first would change what the others do."""
    roles, said = compiled(span.run.settings), []
    for note in await span.orders(roles) if roles else ():
        done = [situation.orders.obey(order) for order in found(note["text"])]
        if done:
            said.append(f"As {note['by'] or 'a note'} asked: {'; '.join(done)}.\n")
    if said:
        await span.say(speaker, *said)
