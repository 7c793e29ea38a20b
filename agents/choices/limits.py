"""What a run may spend, in six units at once: one record each, from which forms, command lines and the API take bounds and words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import Field

SMALLEST = 0.01  # of what is not counted in whole numbers


@dataclass(frozen=True)
class Limit:
    """One unit of a budget. A limit that is null is no limit."""

    unit: str  # as in settings, events and the API
    many: str  # as sentences count it: "12 programs"
    one: str
    says: str  # what is limited
    usual: float | None  # where nobody chooses
    most: float  # that a server takes; a command line on one's own machine has no such bound
    whole: bool = False

    @property
    def least(self) -> float:
        """The smallest limit that anybody may set: nothing at all is no budget."""
        return 1 if self.whole else SMALLEST

    @property
    def help(self) -> str:
        """The same within a sentence of a command's help."""
        return self.says[0].lower() + self.says[1:].rstrip(".")

    def field(self) -> Any:
        """A field of `agents.settings.Budget`."""
        return Field(default=self._usual(), ge=self.least, description=self.says)

    def asked(self) -> Any:
        """The same where a server is asked for it."""
        return Field(self._usual(), ge=self.least, le=int(self.most) if self.whole else self.most, description=self.says)

    def _usual(self) -> float | None:
        return int(self.usual) if self.whole and self.usual is not None else self.usual


DAY = 86_400.0
_ALL = (
    Limit("candidates", "programs", "program", "Programs proposed.", usual=8, most=1000, whole=True),
    Limit("calls", "model calls", "model call", "Calls of language models.", usual=None, most=100_000, whole=True),
    Limit("tokens", "tokens", "token", "Tokens of language models.", usual=None, most=10**9, whole=True),
    Limit("dollars", "dollars", "dollar", "What language models may cost, by the prices of the profiles.", usual=None, most=100_000),
    Limit("verifier_seconds", "seconds of verifier time", "second of verifier time", "Time on a verifier in seconds.", usual=600.0, most=DAY),
    Limit("seconds", "seconds", "second", "Time from start to end in seconds, pauses left out.", usual=1800.0, most=DAY),
)
LIMITS: dict[str, Limit] = {limit.unit: limit for limit in _ALL}
