"""The parallel branches ("ways") of a run, derived from its events: the programs of each branch and the decisions that changed its state."""

from __future__ import annotations

from pydantic import BaseModel, SerializeAsAny

from agents.payloads import CandidateProposed, WayChanged

WORDS = {"begun": "begins", "leads": "takes the lead", "trails": "does not take the lead", "migrated": "migrates", "ended": "ends"}


class WayRow(BaseModel):
    number: int
    begun: int = 1  # round
    ended: str = ""  # the reason why it ended; empty while it is active
    leads: bool = False  # true if its program is the fastest across all branches
    steps: list[int | SerializeAsAny[WayChanged]] = []  # its program numbers and state changes, in trace order

    @property
    def programs(self) -> list[int]:
        return [step for step in self.steps if isinstance(step, int)]

    @property
    def stands(self) -> str:
        """Describes the branch's state in a word or two."""
        return "leads" if self.leads else "ended" if self.ended else "goes on"


def change(ways: list[WayRow], p: WayChanged) -> None:
    """Applies a change to a branch, creating the branch if it is unknown."""
    row = _row(ways, p.way, p.round)
    row.steps.append(p)
    if p.what == "leads":
        for other in ways:
            other.leads = other is row
    elif p.what == "ended":
        row.ended = p.reason or "ended"


def belongs(ways: list[WayRow], p: CandidateProposed) -> None:
    """Adds a program to its branch. A program that belongs to no branch is ignored."""
    if p.way is not None:
        _row(ways, p.way, 1).steps.append(p.candidate)


def told(p: WayChanged) -> str:
    """Returns what happened to a branch, as a sentence that omits its number: "migrates to candidate 5 of branch 2: 2 programs in a row yielded no
    gain."."""
    said = WORDS.get(p.what, p.what)
    if p.candidate is not None:
        said += {"begun": " from", "migrated": " to", "ended": " with"}.get(p.what, " with") + f" candidate {p.candidate}"
        said += f" of branch {p.of}" if p.of is not None else ""
    if p.speedup is not None and p.beside is not None:
        said += f", {p.speedup.ratio:.3f}x [{p.speedup.low:.3f}, {p.speedup.high:.3f}] of candidate {p.beside}, timed in alternation"
    return f"{said}: {p.reason}" if p.reason else f"{said}."


def _row(ways: list[WayRow], number: int, begun: int) -> WayRow:
    row = next((way for way in ways if way.number == number), None)
    if row is None:
        row = WayRow(number=number, begun=begun)
        ways.append(row)
        ways.sort(key=lambda way: way.number)
    return row
