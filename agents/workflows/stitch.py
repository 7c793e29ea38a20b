"""StitchCUDA's loop: plan, write step by step, verify, profile and diagnose. Each program addresses the diagnosis of the previous one.

Taken from the paper (arXiv 2603.02637): the three roles, the profile before the plan, one step or one method per round, and the Verifier's routes
(repair, optimise, next step, re-plan, stop). Taken from its repository: at most two new plans. Our own additions: every change starts from the best
correct program, repairs are limited before the search moves on, stopping rules show their figures, and the winner is confirmed in the full tier with
fresh seeds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from agents.budget import OutOfBudget
from agents.roles import steps
from agents.roles.coder import BuiltInCoder
from agents.roles.planner import payload_of
from agents.roles.rules_verifier import scarce
from agents.roles.situation import Advice, Attempt, Edit, Roles, Situation, required
from agents.run import Engine, Finish
from agents.settings import Settings
from agents.span import Span
from agents.stopping import enough, plateau
from agents.workflows.attempting import Turn, advise, attempt_once, try_edit
from agents.workflows.confirming import confirm
from agents.workflows.descending import descend_last
from agents.workflows.measuring import admit, verdict
from agents.workflows.understanding import plan, understand

MAX_REPAIRS = 5  # maximum number of repairs in a row if there is no alternative
FEWER_REPAIRS = 3  # maximum if there is an alternative: a new plan, or a correct program to continue from
MAX_REPLANS = 2


async def stitch(run: Engine) -> Finish:
    situation = Situation(run.task_source, run.task_name, run.settings)
    roles = run.cast()
    situation.admission = await admit(run)
    await understand(run, situation)
    await plan(run, situation, roles)
    try:
        searching = Search(run, situation, roles)
        if searching.guided and run.settings.first_program == "built-in":
            await searching.begin_with_the_compiler()
        reason, spent = await searching.to_the_end(), False
        if searching.guided:  # otherwise, the compiler's own moves have already tuned the numbers
            reason = await descend_last(run, situation, roles, reason)
    except OutOfBudget as error:
        reason, spent = f"{error}, so the search ends here", True
    return await confirm(run, situation, reason, spent)


@dataclass
class Search:
    """The state of the search. `guided`: whether the coder is a model that works through steps and methods, unlike the compiler, which chooses its
    own changes. The settings are those of the current round, because a fork of the run may have changed them."""

    run: Engine
    situation: Situation
    roles: Roles
    advice: Advice | None = None
    decision: int | None = None  # seq of the decision behind this advice
    number: int = 0  # round number
    repairs: int = 0  # repairs in a row
    planned_at: int = 0  # number of the last candidate before the current plan
    anew: bool = False  # the next program is written from scratch
    begun: bool = False  # the run started with a compiler program that passed

    @property
    def settings(self) -> Settings:
        return self.run.settings_for(f"step-{self.number}")

    @property
    def guided(self) -> bool:
        return self.settings.coder != "built-in"

    async def begin_with_the_compiler(self) -> None:
        """Uses the compiler's program as the first candidate and has the run's judge diagnose it. If it passes, every step of the plan is already
        implemented."""
        async with self.run.span("compiled", "The compiler's program", "coder") as span:
            attempt = await try_edit(self.run, span, self.situation, await compiled_edit(span, self.situation), None)
            if attempt.passed:
                self.begun = True
                self.advice, self.decision = await advise(self.run, span, self.situation, self.roles, attempt, self._stopping)

    async def to_the_end(self) -> str:
        """Writes programs until there is a reason to stop, and returns the reason."""
        self.situation.replans_left = MAX_REPLANS if self.run.settings.planner != "built-in" else 0
        self._begin_plan()
        if self.advice is not None and self.advice.route == "stop":
            return self.advice.reason
        if self.advice is not None and self.advice.route == "re-plan":
            await self._replan(self.advice)
        while True:
            self.number += 1
            turn = await self._round()
            if turn is None:
                return "the coder has no further program to propose; stopped early"
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
        """Carries out one step or method, including any repairs. Afterwards, `repairs` is 0 unless the repairs did not help."""
        self.repairs = attempts = 0
        async with self.run.span(f"step-{self.number}", self._title(), "coder") as span:
            while True:
                attempts += 1
                path = f"{span.path}/attempt-{attempts}"
                turn = await attempt_once(
                    self.run, self.situation, self.roles, path, self._parent(), self.advice, self.decision, stopping=self._stopping
                )
                if turn is None:
                    span.skip("no further program")
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
        """Returns the program to change next: the failed one if it is to be repaired, otherwise the best correct one."""
        last = self.situation.attempts[-1] if self.situation.attempts else None
        if self.advice is not None and self.advice.route == "repair" and last is not None and last.number > self.planned_at:
            return last
        return None if self.anew else self.situation.best

    def _patience(self) -> int:
        another_way = self.guided and (self.situation.best is not None or (self.situation.replans_left > 0 and not scarce(self.run, self.situation)))
        return FEWER_REPAIRS if another_way else MAX_REPAIRS

    def _way_round(self) -> str:
        """Decides how to continue if repairs did not help. Returns a reason to stop, or "" if the advice offers another route."""
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
        """Returns the engine's own reason to stop, if any. On a plateau, a new plan comes first if one is left. A plan is judged only by its own
        programs."""
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
        stepwise = self.guided and self.settings.coder_mode == "one"  # the frontend agent of `pair` translates the whole plan in one program
        self.situation.step = steps.first(self.situation) if stepwise and not self.begun else None
        self.planned_at = max((a.number for a in self.situation.attempts), default=0)
        self.anew = self.guided and not stepwise and not self.begun
        self.begun = False

    async def _replan(self, advice: Advice) -> None:
        situation = self.situation
        situation.outcome, situation.replans_left = advice.reason, situation.replans_left - 1
        count = MAX_REPLANS - situation.replans_left
        await plan(self.run, situation, self.roles, f"re-plan-{count}", "A new plan")
        self.advice = self.decision = None
        self._begin_plan()


async def compiled_edit(span: Span, situation: Situation) -> Edit:
    """Returns the built-in coder's first program, which is based on the compiler's own plan regardless of who wrote the run's plan."""
    plan = situation.planned
    by_compiler = replace(situation, plan=replace(plan, payload=payload_of(plan.data, plan.floor_ms)))
    return required(await BuiltInCoder().write(span, by_compiler, None, None), "the compiler prints a first program for every plan")
