"""Names of entries: a short one for the table, and the full one on request."""

from __future__ import annotations

from dataclasses import dataclass

from agents.choices.workflows import searches
from webapp.leaderboard.models import Entry

LANGUAGES = {"cuda": "CUDA C++", "triton": "Triton", "cpp": "C++"}


@dataclass(frozen=True)
class Name:
    short: str
    full: str

    def __str__(self) -> str:
        return self.short


def named(entry: Entry) -> Name:
    language = LANGUAGES.get(entry.language, entry.language)
    if not searches(entry.workflow):
        team = entry.team.name if entry.team else ""
        return Name(" · ".join(filter(None, ["own programs", team, language])), "programs that people wrote and had verified")
    roles = {"planner": entry.planner, "coder": entry.coder, "judge": entry.judge}
    players = set(roles.values())
    agents = entry.coder if len(players) == 1 else " / ".join(roles.values())
    short = " · ".join(filter(None, [entry.workflow, agents, entry.coder_mode, language]))
    return Name(short, f"workflow {entry.workflow}; " + ", ".join(f"{role} {player}" for role, player in roles.items()))
