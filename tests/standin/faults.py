"""Uses a seed and the prompt's content to decide which requests are answered wrongly, and for how long.

A transport fault disappears when the same request is sent again. A content fault is a mistaken belief: it persists for that task, role and step,
regardless of the request, until the prompt contains the evidence that explains it (the parse error, the compiler's message, the mismatch, the finding
of the integrity checks). Asking again without evidence therefore does not help.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

TRANSPORT = ("truncated-stream", "rate-limited", "server-error", "hang", "connection-reset")
CONTENT = ("malformed-json", "prose", "wrong-file", "stale-block", "does-not-compile", "wrong-result", "cheat")
KINDS = (*TRANSPORT, *CONTENT)
TRANSPORT_SHARE = 1 / 3  # transport faults (requests lost in transit) as a share of the rate

# Texts in a prompt that show that a mistake of this kind was noticed. Programs are removed from the prompt before the search.
EVIDENCE = {
    "malformed-json": r"JSON (?:cannot be read|does not fit)|no JSON object",
    "prose": r"fences that define ModelNew|code block|more than one|could not be (?:read|parsed)",
    "wrong-file": r"may not be edited|is the reference|class ModelNew",
    "stale-block": r"does not occur|\b0 matches",
    "does-not-compile": r"error: [^\n]*{token}|{token}[^\n]*(?:not declared|not defined|undefined|undeclared)",
    "wrong-result": r"elements are off|wrong[_ ]result|mismatch|differs? from",
    "cheat": r"elements are off|wrong[_ ]result|rejected|crashed|timed[_ ]out|refused|integrity",
}


@dataclass(frozen=True)
class Fault:
    kind: str
    name: str = ""  # name of the cheat
    token: str = ""  # an undeclared identifier, used by the program that does not compile

    @property
    def transport(self) -> bool:
        return self.kind in TRANSPORT

    def explained_by(self, evidence: str) -> bool:
        return re.search(EVIDENCE[self.kind].replace("{token}", re.escape(self.token)), evidence) is not None

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" if self.name else self.kind


@dataclass
class FaultPlan:
    """`rate` is the share of replies whose content is faulty; before a reply, a request encounters a transport fault at a third of that rate.

    Draws are independent. In a suite of tasks that is run under one seed, `stratum` (index, count) identifies the task. The nth draws of all tasks
    for one role and step then form a systematic sample, so that each suite has the requested rate, rather than only the average over many suites.
    """

    seed: int = 0
    rate: float = 0.0
    kinds: Sequence[str] = KINDS
    stratum: tuple[int, int] | None = None
    done: Counter[str] = field(default_factory=Counter)  # faults by kind; "none" for good answers
    _asked: Counter[str] = field(default_factory=Counter)  # requests by place
    _replied: Counter[str] = field(default_factory=Counter)  # replies by place, used for isolated faults
    _stuck: dict[str, Fault] = field(default_factory=dict)
    _broken: set[str] = field(default_factory=set)  # requests whose last answer was a transport fault

    def choose(self, place: str, request: str, evidence: str, applicable: Sequence[str], cheats: Sequence[str] = ()) -> Fault | None:
        """Returns the fault for this answer. `place` is TASK/ROLE/STEP, `request` is the body's hash, and `evidence` is what the prompt reports as
        wrong."""
        self._asked[place] += 1
        fault = self._transport(place, request) or self._content(place, evidence, applicable, cheats)
        self.done[fault.kind if fault else "none"] += 1
        return fault

    def _transport(self, place: str, request: str) -> Fault | None:
        """Returns a transport fault or None, but never a fault twice in a row for the same request."""
        kinds = [kind for kind in TRANSPORT if kind in self.kinds]
        draw = self._draw(place, "transport")
        if request in self._broken or not kinds or draw.random() >= self.rate * TRANSPORT_SHARE:
            self._broken.discard(request)
            return None
        self._broken.add(request)
        return Fault(draw.choice(kinds))

    def _content(self, place: str, evidence: str, applicable: Sequence[str], cheats: Sequence[str]) -> Fault | None:
        stuck = self._stuck.get(place)
        if stuck is not None:
            if not stuck.explained_by(evidence) and stuck.kind in applicable:
                return stuck
            del self._stuck[place]
        self._replied[place] += 1
        kinds = [kind for kind in CONTENT if kind in self.kinds and kind in applicable and (kind != "cheat" or cheats)]
        if not kinds or self._level(place) >= self.rate:
            return None
        draw = self._draw(place, "content")
        kind = draw.choice(kinds)
        name = draw.choice(list(cheats)) if kind == "cheat" else ""
        self._stuck[place] = Fault(kind, name, token=f"rows_of_tile_{draw.randrange(10**6):06d}")
        return self._stuck[place]

    def _level(self, place: str) -> float:
        """Returns a uniform number in [0, 1) for the current draw."""
        if self.stratum is None:
            return self._draw(place, "level").random()
        index, count = self.stratum
        draw = random.Random(f"{self.seed}:{place.partition('/')[2]}:{self._replied[place]}:suite")
        order = draw.sample(range(count), count)
        return (order[index] + draw.random()) / count

    def _draw(self, place: str, what: str) -> random.Random:
        return random.Random(f"{self.seed}:{place}:{self._asked[place]}:{what}")
