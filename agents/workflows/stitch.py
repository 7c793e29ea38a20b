"""StitchCUDA's loop: plan, write step by step, verify, profile, diagnose, and let each further program answer the diagnosis of the one before.

From the paper (arXiv 2603.02637): the three roles, the profile before the plan, one step or one method a round, the Verifier's routes (repair,
optimise, next step, re-plan, stop). From its repository: at most two new plans. Ours: every change starts from the best correct program, repairs
have an end that leads somewhere, stopping rules show their figures, and the winner is confirmed in tier full on fresh seeds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from agents.budget import OutOfBudget
from agents.roles import steps
from agents.roles.rules_verifier import scarce
from agents.roles.situation import Advice, Attempt, Roles, Situation, required
from agents.run import Engine, Finish
from agents.settings import Settings
from agents.stopping import enough, plateau
from agents.workflows.attempting import Turn, attempt_once
from agents.workflows.confirming import confirm
from agents.workflows.descending import descend_last
from agents.workflows.measuring import admit, verdict
from agents.workflows.understanding import plan, understand

MAX_REPAIRS = 5  # in a row, where nothing else is left to do
FEWER_REPAIRS = 3  # where there is another way: a new plan, or a correct program to go on from
MAX_REPLANS = 2


async def stitch(run: Engine) -> Finish:
    situation = Situation(run.task_source, run.task_name, run.settings)
    roles = run.cast()
    situation.admission = await admit(run)
    await understand(run, situation)
    await plan(run, situation, roles)
    try:
        searching = Search(run, situation, roles)
        reason, spent = await searching.to_the_end(), False
        if searching.guided:  # the compiler's own moves tune numbers already
            reason = await descend_last(run, situation, roles, reason)
    except OutOfBudget as error:
        reason, spent = f"{error}, so the search ends here", True
    return await confirm(run, situation, reason, spent)


@dataclass
class Search:
    """Where the search stands. `guided`: the coder is a model, which takes steps and methods; the compiler knows its own way. Settings are
    those of the round: a fork of the run may have changed them."""

    run: Engine
    situation: Situation
    roles: Roles
    advice: Advice | None = None
    decision: int | None = None  # seq of the decision that gave the advice
    number: int = 0  # of the round
    repairs: int = 0  # in a row
    planned_at: int = 0  # number of the last candidate before the present plan
    anew: bool = False  # the next program is written from the beginning

    @property
    def settings(self) -> Settings:
        return self.run.settings_for(f"step-{self.number}")

    @property
    def guided(self) -> bool:
        return self.settings.coder != "built-in"

    async def to_the_end(self) -> str:
        """Programs until one of the reasons to stop holds; returns that reason."""
        self.situation.replans_left = MAX_REPLANS if self.run.settings.planner != "built-in" else 0
        self._begin_plan()
        while True:
            self.number += 1
            turn = await self._round()
            if turn is None:
                return "the coder has nothing left to write"
            if self.repairs:
                reason = self._way_round()
                if reason:
                    return reason
            advice = self._advised
            if advice.route == "stop":
                return advice.reason
            if advice.route == "re-plan":
                await self._replan(advice)
            elif advice.route == "next-step":
                self.situation.step = steps.following(self.situation)

    @property
    def _advised(self) -> Advice:
        return required(self.advice, "nothing has been advised yet")

    async def _round(self) -> Turn | None:
        """One step or method, with the repairs that it needs. Afterwards `repairs` is 0 unless they did not help."""
        self.repairs = attempts = 0
        async with self.run.span(f"step-{self.number}", self._title(), "coder") as span:
            while True:
                attempts += 1
                path = f"{span.path}/attempt-{attempts}"
                turn = await attempt_once(
                    self.run, self.situation, self.roles, path, self._parent(), self.advice, self.decision, stopping=self._stopping
                )
                if turn is None:
                    span.skip("nothing left to write")
                    return None
                self.anew = False
                self.advice, self.decision = turn.advice, turn.decision
                self.repairs = self.repairs + 1 if turn.attempt is None or self.advice.route == "repair" else 0
                if not self.repairs or self.repairs > self._patience():
                    break
            said = verdict(turn.attempt.verdict) if turn.attempt is not None else "no usable program"
            if turn.passed:
                span.summary = said
            else:
                span.fail(said)
        return turn

    def _title(self) -> str:
        if self.advice is not None and self.advice.method:
            return f"Answer the diagnosis: {self.advice.method}"
        step = self.situation.step
        return f"Step {step.get('id')}: {step.get('title')}"[:200] if step else "Write the program"

    def _parent(self) -> Attempt | None:
        """What is changed next: the program that failed where it is to be repaired, else the best correct one."""
        last = self.situation.attempts[-1] if self.situation.attempts else None
        if self.advice is not None and self.advice.route == "repair" and last is not None and last.number > self.planned_at:
            return last
        return None if self.anew else self.situation.best

    def _patience(self) -> int:
        another_way = self.guided and (self.situation.best is not None or (self.situation.replans_left > 0 and not scarce(self.run, self.situation)))
        return FEWER_REPAIRS if another_way else MAX_REPAIRS

    def _way_round(self) -> str:
        """What follows where repairs did not help: a reason to stop, or none and the advice leads elsewhere."""
        said = f"{self.repairs - 1} repairs in a row did not help"
        if not self.guided:
            return said
        situation, best = self.situation, self.situation.best
        step = (situation.step or {}).get("id")
        stepped = any(a.passed and a.edit.step == step for a in situation.attempts if a.number > self.planned_at)
        following = steps.following(situation)
        if not stepped and situation.replans_left > 0:
            self._turn("re-plan", said)
        elif not stepped and following is not None:
            self._turn("next-step", f"{said}; on to {following.get('id')}")
        elif best is not None:
            self.advice, self.decision = self.roles.verifier.by_rules(situation, best), None
            if self.advice.route == "stop":
                return f"{said}. {self.advice.reason}"
        else:
            return said
        return ""

    def _turn(self, route: str, reason: str) -> None:
        self.advice, self.decision = replace(self._advised, route=route, reason=reason, method=None, expected=None, move=None), None

    def _stopping(self, run: Engine, situation: Situation, advice: Advice) -> Advice:
        """The engine's own reasons to stop; at a plateau a new plan first, where one is left. A plan is judged by its own programs."""
        if advice.route == "stop":
            return advice
        reason, route = enough(run, situation), "stop"
        if not reason:
            earlier = [a for a in situation.attempts if a.number <= self.planned_at and a.passed]
            since = [*sorted(earlier, key=lambda a: a.score)[-1:], *(a for a in situation.attempts if a.number > self.planned_at)]
            reason = plateau(replace(situation, attempts=since), advice)
            route = "re-plan" if situation.replans_left > 0 else "stop"
        return replace(advice, route=route, method=None, expected=None, move=None, reason=reason) if reason else advice

    def _begin_plan(self) -> None:
        stepwise = self.guided and self.settings.coder_mode == "one"  # the pair's frontend agent translates the whole plan at once
        self.situation.step = steps.first(self.situation) if stepwise else None
        self.planned_at = max((a.number for a in self.situation.attempts), default=0)
        self.anew = self.guided and not stepwise

    async def _replan(self, advice: Advice) -> None:
        situation = self.situation
        situation.outcome, situation.replans_left = advice.reason, situation.replans_left - 1
        count = MAX_REPLANS - situation.replans_left
        await plan(self.run, situation, self.roles, f"re-plan-{count}", "A new plan")
        self.advice = self.decision = None
        self._begin_plan()
