"""How many tokens a text may be: an estimate on the high side, for limits and reservations; the server's own count replaces it."""

from __future__ import annotations

import math

from agents.llm.messages import Request

BYTES_PER_TOKEN = 3.0  # code and English have 3 to 4 with the vocabularies of today, other scripts about 3 bytes a token
PER_MESSAGE = 8  # role and separators of a chat template


def estimate_input(request: Request) -> int:
    return sum(math.ceil(len(message.content.encode()) / BYTES_PER_TOKEN) + PER_MESSAGE for message in request.messages)
