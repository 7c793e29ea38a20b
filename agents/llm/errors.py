"""Ways in which a model can fail to answer. Each failure includes advice on what to do about it."""

from __future__ import annotations

from typing import Literal

FailureKind = Literal[
    "configuration",  # no such profile, no key, or an unusable profile; retrying does not help
    "refused",  # the server refuses the request or the key (4xx except 408, 409, 425, 429)
    "too-long",  # prompt and reply together exceed the model's context
    "busy",  # 429 or overload that persists after all retries
    "unreachable",  # no connection, a timeout, 5xx or a broken stream that persists after all retries
    "protocol",  # an answer that violates the protocol
    "asked",  # not an error: the request is pending, and no process is waiting for the reply
]


class ModelFailure(Exception):
    """Raised if a model did not answer. `hint` says what to do. Neither the hint nor the message ever contains a key or a header."""

    def __init__(self, kind: FailureKind, message: str, hint: str = "", *, attempts: int = 1):
        super().__init__(message)
        self.kind, self.message, self.hint, self.attempts = kind, message, hint, attempts

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class Asked(ModelFailure):
    """Raised when a request has been left for a person or a chat. The reply is read when the run resumes. `request`: its id in the mailbox."""

    def __init__(self, message: str, hint: str, request: str):
        super().__init__("asked", message, hint, attempts=0)
        self.request = request
