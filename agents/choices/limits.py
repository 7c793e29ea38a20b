"""The budget limits of a run, in six independent units. Forms, command lines and the API take their bounds and wording from these records, one per
unit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import Field

SMALLEST = 0.01  # smallest limit for units that are not counted in integers


@dataclass(frozen=True)
class Limit:
    """One unit of a budget. If a limit is null, there is no limit."""

    unit: str  # name of the unit in settings, events and the API
    many: str  # plural as used in sentences: "12 programs"
    one: str
    says: str  # what is limited
    usual: float | None  # the default
    most: float  # the highest limit that a server accepts; on a person's own machine, the command line has no such bound
    whole: bool = False

    @property
    def least(self) -> float:
        """The smallest limit that may be set. It is above zero because a budget of zero would be useless."""
        return 1 if self.whole else SMALLEST

    @property
    def help(self) -> str:
        """The description, worded to fit into a sentence in a command's help text."""
        return self.says[0].lower() + self.says[1:].rstrip(".")

    def field(self) -> Any:
        """Returns the field for `agents.settings.Budget`."""
        return Field(default=self._usual(), ge=self.least, description=self.says)

    def asked(self) -> Any:
        """Returns the same field as used in server requests."""
        return Field(self._usual(), ge=self.least, le=int(self.most) if self.whole else self.most, description=self.says)

    def _usual(self) -> float | None:
        return int(self.usual) if self.whole and self.usual is not None else self.usual


DAY = 86_400.0
_ALL = (
    Limit("candidates", "programs", "program", "Programs proposed.", usual=8, most=1000, whole=True),
    Limit("calls", "model calls", "model call", "Calls of language models.", usual=None, most=100_000, whole=True),
    Limit("tokens", "tokens", "token", "Tokens of language models.", usual=None, most=10**9, whole=True),
    Limit("dollars", "dollars", "dollar", "Maximum cost of language models, by the prices of the profiles.", usual=None, most=100_000),
    Limit("verifier_seconds", "seconds of verifier time", "second of verifier time", "Time on a verifier in seconds.", usual=600.0, most=DAY),
    Limit("seconds", "seconds", "second", "Time from start to end in seconds, without pauses.", usual=1800.0, most=DAY),
)
LIMITS: dict[str, Limit] = {limit.unit: limit for limit in _ALL}
