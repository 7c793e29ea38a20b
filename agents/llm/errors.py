"""How a model can fail to answer. Each failure says what a person can do about it."""

from __future__ import annotations

from typing import Literal

FailureKind = Literal[
    "configuration",  # no such profile, no key, a profile that cannot be used: asking again does not help
    "refused",  # the server refuses the request or the key (4xx but 408, 409, 425, 429)
    "too-long",  # prompt and reply do not fit the model's context
    "busy",  # 429 or overload, for longer than the retries last
    "unreachable",  # no connection, timeouts, 5xx, broken streams, for longer than the retries last
    "protocol",  # an answer that is not of the protocol
    "asked",  # nothing went wrong: the request waits for a reply, and nobody waits with it
]


class ModelFailure(Exception):
    """A model did not answer. `hint` says what to do; neither it nor the message ever holds a key or a header."""

    def __init__(self, kind: FailureKind, message: str, hint: str = "", *, attempts: int = 1):
        super().__init__(message)
        self.kind, self.message, self.hint, self.attempts = kind, message, hint, attempts

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class Asked(ModelFailure):
    """A request that was left for a person or a chat, whose reply is taken when the run goes on. `request`: its id in the mailbox."""

    def __init__(self, message: str, hint: str, request: str):
        super().__init__("asked", message, hint, attempts=0)
        self.request = request
