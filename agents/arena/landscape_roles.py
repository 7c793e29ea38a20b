"""The Planner, Coder and Verifier of the simulated model. They query the simulated model wherever a language model would be called, so the workflow
makes the same calls and incurs the same costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from agents.arena import landscape_tree
from agents.arena.landscape import Axis, Landscape, Point, replaced
from agents.arena.model import PROFILE, Hand, Written
from agents.choices.workflows import Role
from agents.decisions.script import MOST_NEW, Edited
from agents.decisions.view import View
from agents.diagnosis import Diagnosis
from agents.events import Agent
from agents.llm.messages import Message, Request
from agents.roles.situation import Advice, Attempt, Edit, Idea, Knob, Plan, Roles, Situation
from agents.span import Span
from agents.strategies import by_name
from verifier.profiling.diagnosing.diagnosis import defect

Choices = dict[int, int]  # axis: value
NEAR_FLOOR = 1.05
# For numbers without a catalogue strategy: the bottlenecks that a change may address.
ANSWERS = {
    "warp-per-row": ("latency", "occupancy"), "work-per-thread": ("latency", "memory"), "unroll": ("latency", "compute"),
    "occupancy": ("occupancy", "latency"), "block-size": ("occupancy", "latency", "memory"), "vectorise": ("memory", "latency"),
    "row-cache": ("memory",), "parallel-split": ("occupancy",), "cuda-graph": ("launch",), "leave-to-library": ("compute", "memory"),
}  # fmt: skip


class Player:
    """State shared by the three roles. `asks`: whether a model plays this role. If not, the role is built in, costs nothing, and makes none of a
    model's errors."""

    name = PROFILE

    def __init__(self, hand: Hand, asks: bool = True):
        self.hand, self.asks = hand, asks
        self.landscape: Landscape = hand.landscape

    async def ask(self, span: Span, agent: Agent, purpose: str) -> None:
        if self.asks:
            await span.ask(agent, PROFILE, _request(purpose))

    def written(self, point: int) -> Written:
        return Written(point, self.hand.fault(point) if self.asks else "")

    def edit(self, written: Written, title: str, strategy: str = "", idea: Idea | None = None) -> Edit:
        landscape = self.landscape
        changes = landscape.describe(landscape.point(written.point))
        return Edit(written.source, title, changes, (), strategy, "", written, idea)

    def point_of(self, attempt: Attempt) -> int:
        return int(attempt.edit.options.point)

    def _drawn(self, most: int = 3) -> Choices:
        """Draws between one and `most` choices that differ from the compiler's own."""
        draw, axes = self.hand.draw(), self.landscape.axes
        chosen = draw.sample(range(len(axes)), min(draw.randint(1, most), len(axes)))
        return {axis: draw.choice([value for value in range(len(axes[axis].values)) if value != axes[axis].default]) for axis in chosen}

    def _preferred(self, two: list[Choices], base: Point | None = None) -> Choices:
        if self.asks and self.hand.draw().random() < self.hand.quality.foresight:
            return max(two, key=lambda choices: self.landscape.speedup(self._point(choices, base)))
        return two[0]

    def _point(self, choices: Choices, base: Point | None = None) -> int:
        point = base or self.landscape.default
        for axis, value in choices.items():
            point = replaced(point, axis, value)
        return self.landscape.index(point)


class LandscapePlanner(Player):
    @property
    def replans(self) -> bool:
        return self.asks

    async def plan(self, span: Span, situation: Situation) -> Plan:
        await self.ask(span, "planner", "planner/plan")
        floor = self.landscape.floor_us / 1e3 or None
        return Plan({"summary": self.landscape.what, "steps": [], "floor_ms": floor}, (), None, floor)

    async def ideas(self, span: Span, situation: Situation, count: int, known: Sequence[Idea]) -> list[Idea]:
        await self.ask(span, "planner", "planner/ideas")
        seen = {frozenset(idea.data.items()) for idea in known}
        found: list[Idea] = []
        for _ in range(20 * count):
            choices = self._preferred([self._drawn(), self._drawn()])
            if frozenset(choices.items()) not in seen:
                seen.add(frozenset(choices.items()))
                found.append(self._idea(choices))
            if len(found) == count:
                break
        return found

    async def cross(self, span: Span, situation: Situation, first: Idea, second: Idea) -> Idea:
        await self.ask(span, "planner", "planner/cross")
        draw = self.hand.draw()
        children = []
        for _ in range(2):
            child: Choices = {}
            for axis in dict.fromkeys([*first.data, *second.data]):
                if axis in first.data and axis in second.data:
                    child[axis] = draw.choice((first.data[axis], second.data[axis]))
                elif draw.random() < 0.7:
                    child[axis] = first.data.get(axis, second.data.get(axis))
            children.append(child if child and child not in (first.data, second.data) else {**first.data, **second.data, **self._drawn(1)})
        return self._idea(self._preferred(children), (first.number, second.number))

    async def align(self, span: Span, situation: Situation, idea: Idea, attempt: Attempt) -> Idea:
        await self.ask(span, "planner", "planner/align")
        point, default = self.landscape.point(self.point_of(attempt)), self.landscape.default
        return self._idea({axis: value for axis, value in enumerate(point) if value != default[axis]}, (idea.number,))

    async def edit_tree(self, span: Span, situation: Situation, view: View) -> Edited:
        await self.ask(span, "planner", "planner/tree")
        answering, best = LandscapeVerifier(self.hand, self.asks), situation.best
        families = [self._preferred([self._drawn(), self._drawn()]) for _ in range(MOST_NEW)] if best is None else []
        bottleneck = answering.diagnosed(best).bottleneck if best is not None else ""
        return landscape_tree.script(self.hand, situation, view, answering, families, bottleneck)

    def _idea(self, choices: Choices, parents: tuple[int, ...] = ()) -> Idea:
        title = self.landscape.describe(self.landscape.point(self._point(choices)))
        return Idea(title, title, tuple(self.landscape.axes[axis].strategy for axis in choices), None, parents, data=choices)


class LandscapeCoder(Player):
    async def write(self, span: Span, situation: Situation, parent: Attempt | None, advice: Advice | None) -> Edit | None:
        if parent is None:
            await self.ask(span, "coder", "coder/write")
            return self.edit(self.written(self._first()), "The first program")
        if advice is None:  # a new plan, although programs already exist
            await self.ask(span, "coder", "coder/write")
            base = self.landscape.point(self.point_of(parent))
            return self.edit(self.written(self._point(self._preferred([self._drawn(), self._drawn()], base), base)), "The new plan")
        if advice.route == "repair":
            await self.ask(span, "coder", "coder/repair")
            return self.edit(self._repaired(parent), f"Candidate {parent.number} repaired", parent.edit.strategy, parent.edit.idea)
        if advice.move is None:
            return None
        await self.ask(span, "coder", "coder/optimise")
        axis, value = advice.move
        point = replaced(self.landscape.point(self.point_of(parent)), axis, value)
        return self.edit(self.written(self.landscape.index(point)), _named(self.landscape.axes[axis], value), advice.method or "")

    async def realise(self, span: Span, situation: Situation, idea: Idea, parent: Attempt | None) -> Edit | None:
        await self.ask(span, "coder", "coder/realise")
        point = self.landscape.point(self.point_of(parent)) if parent is not None else self.landscape.default
        for axis, value in idea.data.items():
            point = replaced(point, axis, value)
        written = self.written(self.landscape.index(point))
        if any(attempt.edit.source == written.source for attempt in situation.attempts):
            return None  # the edit would change nothing
        return self.edit(written, idea.title, idea.strategies[0] if idea.strategies else "", idea)

    def knobs(self, situation: Situation, attempt: Attempt) -> list[Knob]:
        point = self.landscape.point(self.point_of(attempt))
        return [Knob(axis.label, axis.values, axis.values[at]) for axis, at in zip(self.landscape.axes, point, strict=True) if axis.numeric]

    async def tune(self, span: Span, situation: Situation, attempt: Attempt, values: Mapping[str, int]) -> Edit | None:
        """Changes one number in a correct program, without the model. The table determines whether the result is correct."""
        point = self.landscape.point(self.point_of(attempt))
        for number, axis in enumerate(self.landscape.axes):
            if axis.label in values:
                point = replaced(point, number, axis.values.index(values[axis.label]))
        return self.edit(Written(self.landscape.index(point)), ", ".join(f"{name} = {value}" for name, value in values.items()), "block-size")

    def _first(self) -> int:
        """Returns the point of the first program: the compiler's own choices, from which a model deviates in a few places."""
        point = self.landscape.default
        if self.asks:
            draw = self.hand.draw()
            for number, axis in enumerate(self.landscape.axes):
                if draw.random() < self.hand.quality.perturbed:
                    point = replaced(point, number, draw.randrange(len(axis.values)))
        return self.landscape.index(point)

    def _repaired(self, parent: Attempt) -> Written:
        """Returns a repair based on the report. Once understood, a fault stays fixed for the rest of the run. If the table itself lists the program
        as failing, the change is undone."""
        written: Written = parent.edit.options
        draw = self.hand.draw()
        if written.fault:
            if draw.random() < self.hand.quality.repair:
                self.hand.learn(written.fault)
            return self.written(written.point)
        point, default = self.landscape.point(written.point), self.landscape.default
        other = [axis for axis, value in enumerate(point) if value != default[axis]]
        axis = draw.choice(other) if other else 0
        return self.written(self.landscape.index(replaced(point, axis, default[axis])))


class LandscapeVerifier(Player):
    async def advise(self, span: Span, situation: Situation, attempt: Attempt) -> Advice:
        await self.ask(span, "verifier", "verifier/advise")
        return self.by_rules(situation, attempt)

    def by_rules(self, situation: Situation, attempt: Attempt) -> Advice:
        if not attempt.passed:
            return Advice(defect(attempt.verdict), "repair", f"Candidate {attempt.number} did not pass.")
        best = situation.best or attempt
        point = self.point_of(best)
        diagnosis = self.diagnosed(best)
        if diagnosis.bottleneck == "none":
            return Advice(diagnosis, "stop", "At 95 % of the floor or better: no worthwhile gain is left.")
        move = self.change(point, diagnosis.bottleneck, {self.point_of(a) for a in situation.attempts})
        if move is None:
            return Advice(diagnosis, "stop", "Every change of one choice has been tried.")
        axis = self.landscape.axes[move[0]]
        return Advice(diagnosis, "optimise", f"Next: {_named(axis, move[1])}.", axis.strategy or axis.name, None, move)

    def change(self, point: int, bottleneck: str, tried: set[int]) -> tuple[int, int] | None:
        """Returns one change as (axis, value), chosen as the simulated model would choose it."""
        landscape, draw, quality = self.landscape, self.hand.draw(), self.hand.quality
        insight, foresight = (quality.insight, quality.foresight) if self.asks else (1.0, 0.0)  # the compiler's rules always address the diagnosis
        here = landscape.point(point)
        # A step along an axis adds a multiple of its stride to the index, so no point has to be constructed.
        open_moves = [
            (axis, value)
            for axis, value in landscape.neighbours(here)
            if point + (value - here[axis]) * landscape.strides[axis] not in tried
        ]  # fmt: skip
        if not open_moves:
            return None
        pool = open_moves
        if draw.random() < insight:
            pool = self.answering(open_moves, point, bottleneck) or open_moves
        two = [draw.choice(pool), draw.choice(pool)]
        if draw.random() >= foresight:
            return two[0]
        return max(two, key=lambda move: landscape.speedup(point + (move[1] - here[move[0]]) * landscape.strides[move[0]]))

    def answering(self, moves: list[tuple[int, int]], point: int, bottleneck: str) -> list[tuple[int, int]]:
        """Returns the moves whose strategy addresses the bottleneck, restricted to the slowest kernel if it is known."""
        landscape = self.landscape
        fitting = [move for move in moves if bottleneck in _answers(landscape.axes[move[0]])]
        shares = landscape.shares[point] if landscape.shares else None
        if shares and any(shares):
            group = landscape.groups[max(range(len(shares)), key=shares.__getitem__)]
            return [move for move in fitting if landscape.axes[move[0]].group in ("", group)] or fitting
        return fitting

    def diagnosed(self, attempt: Attempt) -> Diagnosis:
        landscape, point = self.landscape, self.point_of(attempt)
        timing = attempt.verdict.timing
        headroom = timing.program_ms * 1e3 / landscape.floor_us if timing is not None and landscape.floor_us else None
        bottleneck = landscape.bottleneck[point] or "latency"
        if headroom is not None:
            bottleneck = "none" if headroom <= NEAR_FLOOR else "latency" if bottleneck == "none" else bottleneck
        return Diagnosis.model_construct(bottleneck=bottleneck, headroom=headroom, evidence=[], text=f"Bound by {bottleneck}.", faults=[], methods=[])


@cache
def _request(purpose: str) -> Request:
    return Request(messages=[Message(role="user", content=purpose)], purpose=purpose)


@cache
def _answers(axis: Axis) -> tuple[str, ...]:
    strategy = by_name(axis.strategy)
    return strategy.answers if strategy is not None else ANSWERS.get(axis.strategy, ("latency",))


def _named(axis: Axis, value: int) -> str:
    return f"{axis.label} = {axis.values[value]}" if axis.numeric else f"{axis.label} {'on' if axis.values[value] else 'off'}"


def cast(hand: Hand, models: Sequence[Role]) -> Roles:
    """Assigns the roles. `models`: those played by the simulated model. The compiler plays the others at no cost and without a model's errors."""
    return Roles(LandscapePlanner(hand, "planner" in models), LandscapeCoder(hand, "coder" in models), LandscapeVerifier(hand, "judge" in models))
