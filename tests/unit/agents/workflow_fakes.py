"""Roles on a small made-up landscape: three strategies and two numbers, with the speed given by a formula; some programs are wrong until they are
repaired.

The fake client reads a program's speed and status from its text (`agent_fakes`). `seen` records what each call was shown.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field, replace

from agent_fakes import CEILINGS, TASK, FakeClient

from agents.decisions.script import Add, ScriptReply, edited
from agents.diagnosis import diagnose
from agents.journal import MemoryJournal
from agents.local import LocalVerifier
from agents.roles.situation import Advice, Edit, Idea, Knob, Plan, Roles
from agents.run import Engine
from agents.settings import Budget, Settings
from tests.engines import engine_of

STRATEGIES = ("vectorise", "row-cache", "parallel-split")
BLOCKS, UNROLLS = (64, 128, 256, 512, 1024), (1, 2, 4, 8)
START = {"vectorise": 0, "row-cache": 0, "parallel-split": 0, "block": 64, "unroll": 1}


def speed(choices: dict[str, int]) -> float:
    gain = 1.3 ** choices["vectorise"] * 1.2 ** choices["row-cache"] * (1.25 if choices["parallel-split"] and choices["row-cache"] else 1.0)
    block, unroll = BLOCKS.index(choices["block"]), UNROLLS.index(choices["unroll"])
    return round(0.9 * gain * (1 - 0.06 * abs(block - 3)) * (1 - 0.05 * abs(unroll - 2)), 4)


BEST = max(
    speed({"vectorise": v, "row-cache": r, "parallel-split": p, "block": b, "unroll": u})
    for v in (0, 1) for r in (0, 1) for p in (0, 1) for b in BLOCKS for u in UNROLLS
)  # fmt: skip


def program(choices: dict[str, int], wrong: int = 0) -> str:
    """Returns a program with these choices. `wrong`: the number of repairs that it still needs."""
    status = f"# status {'build_failed' if wrong > 1 else 'wrong_result'}\n# message expected ';'\n" if wrong else ""
    return f"# speed {speed(choices)}\n{status}# choices {sorted(choices.items())}\n"


@dataclass(frozen=True)
class Seen:
    role: str
    situation: str
    attempts: tuple[int, ...]  # records what each call was shown
    parent: int | None = None
    ideas: tuple[int, ...] = ()
    route: str = ""


@dataclass
class SearchRoles:
    """Roles that search the landscape. `faults`: the number of repairs that the translation of the n-th idea needs (at index n modulo the length)."""

    name: str = "fake"
    faults: tuple[int, ...] = (0,)
    first_fault: int = 0
    dry: bool = False  # there is nothing to write
    most_ideas: int = 10**6
    seen: list[Seen] = field(default_factory=list)

    def roles(self) -> Roles:
        return Roles(self, self, self)

    def _see(self, role: str, name: str, situation, parent=None, ideas=(), route="") -> None:
        shown = tuple(a.number for a in situation.attempts)
        self.seen.append(Seen(role, name, shown, parent.number if parent else None, tuple(i.number for i in ideas), route))

    # The planner

    async def plan(self, span, situation) -> Plan:
        self._see("planner", "plan", situation)
        return Plan({"summary": "1 group", "steps": [], "floor_ms": 0.1}, ("one group",), floor_ms=0.1, bytes_min=10**6, flops=10**6)

    async def ideas(self, span, situation, count, known) -> list[Idea]:
        self._see("planner", "ideas", situation, ideas=known)
        draw = random.Random(len(known))
        found = []
        while len(found) < min(count, self.most_ideas - len(known)):
            picked = {name: draw.randint(0, 1) for name in STRATEGIES} | {"block": draw.choice(BLOCKS), "unroll": draw.choice(UNROLLS)}
            found.append(Idea(f"draw {len(known) + len(found)}", str(picked), tuple(n for n in STRATEGIES if picked[n]), data=picked))
        return found

    async def cross(self, span, situation, first, second) -> Idea:
        self._see("planner", "cross", situation, ideas=(first, second))
        draw = random.Random(f"{first.number} {second.number}")
        child = {name: draw.choice((first.data[name], second.data[name])) for name in START}
        return Idea(f"{first.number} x {second.number}", str(child), data=child)

    async def align(self, span, situation, idea, attempt) -> Idea:
        self._see("planner", "align", situation, attempt, (idea,))
        return replace(idea, text=f"what candidate {attempt.number} does", data=dict(attempt.edit.options[0]))

    async def edit_tree(self, span, situation, view):
        """Adds four draws below the best program as long as there are ideas; the second depends on the first."""
        self._see("planner", "edit", situation)
        best, made = view.best, len(view.tree.nodes) - 1
        count = min(4, max(self.most_ideas - made, 0))
        draw = random.Random(view.tree.revision)
        ops = view.room_for(count)
        for number in range(count):
            picked = {name: draw.randint(0, 1) for name in STRATEGIES} | {"block": draw.choice(BLOCKS), "unroll": draw.choice(UNROLLS)}
            said = {"title": f"draw {made + number}", "text": str(picked), "strategies": [n for n in STRATEGIES if picked[n]], "expected": 1.2}
            place = {"parent": "first" if number == 1 else best, "id": "first" if number == 0 else ""}
            ops.append(Add.model_validate({"op": "add", **place, **said}).carrying(picked))
        return edited(view.tree, ScriptReply(revision=view.tree.revision, ops=ops), STRATEGIES)

    # The coder

    def _edit(self, choices, wrong=0, title="a program", strategy="vectorise") -> Edit:
        return Edit(program(choices, wrong), title, "changed", ("wrote it",), strategy, "g1", (tuple(choices.items()), wrong))

    async def write(self, span, situation, parent, advice) -> Edit | None:
        self._see("coder", "write", situation, parent, route=advice.route if advice else "")
        if self.dry:
            return None
        if parent is None or advice is None:
            return self._edit(START, self.first_fault, "the first program")
        choices, wrong = dict(parent.edit.options[0]), parent.edit.options[1]
        if advice.route == "repair":
            return self._edit(choices, wrong - 1, "repaired")
        return self._edit({**choices, advice.method: 1}, 0, advice.method, advice.method)

    async def realise(self, span, situation, idea, parent) -> Edit | None:
        self._see("coder", "realise", situation, parent, (idea,))
        await asyncio.sleep(0)
        return None if self.dry else self._edit(idea.data, self.faults[idea.number % len(self.faults)], idea.title)

    def knobs(self, situation, attempt) -> list[Knob]:
        choices = dict(attempt.edit.options[0])
        return [Knob("g1.block", BLOCKS, choices["block"]), Knob("g1.unroll", UNROLLS, choices["unroll"])]

    async def tune(self, span, situation, attempt, values) -> Edit | None:
        self._see("coder", "tune", situation, attempt)
        changed = {name.partition(".")[2]: value for name, value in values.items()}
        return self._edit({**dict(attempt.edit.options[0]), **changed}, 0, "tuned", "block-size")

    # The judge

    async def advise(self, span, situation, attempt) -> Advice:
        self._see("judge", "advise", situation, attempt)
        return self.by_rules(situation, attempt)

    def by_rules(self, situation, attempt) -> Advice:
        found = diagnose(attempt.report, attempt.profile, CEILINGS, bytes_min=None, flops=None, floor_ms=None)
        if not attempt.passed:
            return Advice(found, "repair", "It has to be right first.")
        choices = dict(attempt.edit.options[0])
        method = next((name for name in STRATEGIES if not choices[name]), None)
        if method is None:
            return Advice(found, "stop", "Nothing is left that the catalogue allows.")
        return Advice(found, "optimise", f"{method} should help.", method, 1.2)


def settings(workflow: str, candidates: int | None = None, **changes) -> Settings:
    budget = Budget(candidates=candidates, verifier_seconds=None, seconds=None, **changes.pop("budget", {}))
    return Settings(workflow=workflow, budget=budget, **changes)


def engine(workflow: str, roles: SearchRoles, journal: MemoryJournal | None = None, client: FakeClient | None = None, **changes) -> Engine:
    journal = journal if journal is not None else MemoryJournal()
    return engine_of(
        journal, LocalVerifier(journal, client or FakeClient(), "cpu"), settings(workflow, **changes), TASK, "softmax", roles=roles.roles()
    )
