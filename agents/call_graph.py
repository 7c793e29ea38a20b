"""The call graph of a run, derived from its trace alone: which roles were called, for which purposes, and with which inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from agents.events import Event
from agents.payloads import CandidateProposed, DiagnosisMade, IdeaProposed, PlanProposed, TreeChanged, VerificationFinished


@dataclass(frozen=True)
class Call:
    """One role call. `made` and `parents` hold names such as "idea 3", "candidate 2", "diagnosis of candidate 2" and "plan".

    The possible values of `situation` depend on the role. Planner: "plan", "ideas", "cross", "align", "edit" (one edit script for a tree). Coder:
    "first", "realise" (turn an idea into a program), "repair" (fix a program that did not pass), "optimise", "tune" (change the numbers). Verifier
    agent: "diagnose". The verifier itself: "confirm" (full tier).
    """

    role: str
    situation: str
    span: str
    parents: tuple[str, ...]
    made: tuple[str, ...]


def call_graph(events: Sequence[Event]) -> list[Call]:
    """Returns all calls in trace order. Calls that have no result are left out."""
    calls: list[Call] = []
    passed: dict[int, bool] = {}
    judged: set[int] = set()  # candidates that have a diagnosis
    nodes: list[str] = []  # nodes of the current script
    for event in events:
        match event.body:
            case PlanProposed():
                calls.append(Call("planner", "plan", event.span, (), ("plan",)))
            case TreeChanged(what="edited"):
                calls.append(Call("planner", "edit", event.span, (), tuple(nodes)))
                nodes = []
            case IdeaProposed(situation="tree", idea=number):
                nodes.append(f"idea {number}")
            case IdeaProposed() as p:
                _idea(calls, event, p)
            case CandidateProposed() as p:
                calls.append(Call("coder", *_coder(event, p, passed, judged)))
            case VerificationFinished(job="verify", candidate=int(number), status=status, tier=tier):
                passed[number] = status == "passed"
                if tier == "full":
                    calls.append(Call("verifier", "confirm", event.span, (f"candidate {number}",), ()))
            case DiagnosisMade(candidate=int(number)):
                judged.add(number)
                calls.append(Call("judge", "diagnose", event.span, (f"candidate {number}",), (f"diagnosis of candidate {number}",)))
    return calls


def _idea(calls: list[Call], event: Event, p: IdeaProposed) -> None:
    made, parents = f"idea {p.idea}", tuple(f"idea {n}" for n in p.parents)
    if p.situation == "align":
        calls.append(Call("planner", "align", event.span, (made, f"candidate {p.candidate}"), (made,)))
    elif p.situation == "ideas" and calls and (calls[-1].situation, calls[-1].span) == ("ideas", event.span):
        calls[-1] = Call("planner", "ideas", event.span, (), (*calls[-1].made, made))  # one call, several ideas
    else:
        calls.append(Call("planner", p.situation, event.span, parents, (made,)))


def _coder(event: Event, p: CandidateProposed, passed: dict[int, bool], judged: set[int]) -> tuple[str, str, tuple[str, ...], tuple[str, ...]]:
    parent, idea = p.parent, p.idea
    base = (f"candidate {parent}",) if parent is not None else ()
    made = (f"candidate {p.candidate}",)
    if event.span.startswith("descend"):
        return "tune", event.span, base, made
    if idea is not None:
        return "realise", event.span, (f"idea {idea}", *base), made
    if parent is None:
        return "first", event.span, (), made
    judgement = (f"diagnosis of candidate {parent}",) if parent in judged else ()
    if passed.get(parent) and not judgement:  # without a diagnosis, only numbers were changed
        return "tune", event.span, base, made
    return ("optimise" if passed.get(parent) else "repair"), event.span, (*base, *judgement), made


def as_json(calls: Sequence[Call]) -> list[dict[str, Any]]:
    return [asdict(call) for call in calls]
