"""Runs parallel branches ("ways"), each of which improves its own program. Branches that stagnate continue from the best one, and branches without
prospects are replaced.

Taken from KernelAgent: parallel workers for the best programs and for several bottlenecks, and stopping near the floor. Taken from AKG (arXiv
2512.23424): islands with migration. Taken from KernelEvolve (arXiv 2512.23236) and KernelBand: a single device pool, and pruning by the gain that is
still possible according to a profile. Our own additions: rounds end at a barrier, where replies are processed in the order of the branches, so that a
resumed run makes the same calls. Every decision that changes a branch's state is recorded. A program takes the lead only if it is faster than the
current leader in a measurement that times the two alternately.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from agents.payloads import WayChanged
from agents.roles.situation import Advice, Against, Attempt, Edit, Idea, Roles, Situation, Unusable, VerifierRole, required
from agents.run import Engine, Finish, all_of
from agents.settings import Budget
from agents.span import Span
from agents.stopping import enough, plateau
from agents.workflows.attempting import advise, put_on_record, settle, try_attempt, unusable
from agents.workflows.measuring import measure, verdict
from agents.workflows.solving import solve
from agents.workflows.translating import Ideas, new_ideas, realise
from agents.workflows.ways import REPAIRS, Turns, Way, ancestors_of, line_of, measured_beside

CALLS_A_PROGRAM = 2  # one call for the coder and one for the judge
PROGRAMS_A_WAY = 2  # another branch is opened only if the budget still covers this many programs
IDEAS = 8  # number of ideas requested from the planner per call
STANDS_STILL = 2  # after this many programs in a row without a gain, a branch continues from the best of the others
LOST = 4  # after this many programs in a row without a gain, a branch ends
BARREN = 2  # after this many rounds in a row without a program, the search ends
PATIENCE = 4  # after this many programs per branch without a gain for the whole run, the search ends


async def beam(run: Engine) -> Finish:
    return await solve(run, search)


async def search(run: Engine, situation: Situation, roles: Roles) -> str:
    return await Beam(run, situation, roles).to_the_end()


def places_for(budget: Budget, workers: int) -> int:
    """Returns the number of parallel branches: one per worker, or fewer if the budget does not cover that many."""
    programs = min(budget.candidates or 10**6, budget.calls // CALLS_A_PROGRAM if budget.calls is not None else 10**6)
    return max(1, min(workers, programs // PROGRAMS_A_WAY))


@dataclass
class ByRules:
    """Handles failures without a judge by passing the report's text back to the coder."""

    verifier: VerifierRole
    name: str = "rules"

    async def advise(self, span: Span, situation: Situation, attempt: Attempt) -> Advice:
        return self.by_rules(situation, attempt)

    def by_rules(self, situation: Situation, attempt: Attempt) -> Advice:
        return self.verifier.by_rules(situation, attempt)


@dataclass
class Beam:
    run: Engine
    situation: Situation
    roles: Roles
    ideas: Ideas = field(default_factory=Ideas)
    fresh: list[Idea] = field(default_factory=list)  # ideas that no branch has tried yet
    asked: int = 0  # number of times the planner has been asked for ideas
    more: bool = True  # whether the planner might have more ideas
    ways: list[Way] = field(default_factory=list)  # active branches, ordered by number
    opened: int = 0
    round: int = 0
    barren: int = 0  # rounds in a row without a program
    leader: Attempt | None = None  # the best across all branches
    leads: int | None = None  # number of the leader's branch
    trailed: set[tuple[int, int]] = field(default_factory=set)  # (program, leader) pairs in which a joint measurement found the program no faster

    @property
    def places(self) -> int:
        settings = self.run.settings_for(f"round-{self.round}")
        return places_for(settings.budget, settings.workers)

    async def to_the_end(self) -> str:
        while True:
            self.round += 1
            path = f"round-{self.round}"
            async with self.run.span(path, f"Round {self.round}", "coder") as span:
                if self.round == 1:
                    await self._open(span, None, None, "It writes the plan's program.")
                    await self._fill(span, path)
                before = len(self.situation.attempts)
                await self._write(path)
                await self._rank(span, path)
                reason = await self._next(span, path, len(self.situation.attempts) - before)
                span.summary = self._said(len(self.situation.attempts) - before)
            if reason:
                return reason

    async def _next(self, span: Span, path: str, written: int) -> str:
        """Applies the rules after a round and diagnoses the remaining branches. Returns the reason why the search ends, or "" if it goes on."""
        self.barren = 0 if written else self.barren + 1
        if self.barren == BARREN:
            return f"{BARREN} rounds yielded no new program"
        reason = enough(self.run, self.situation) or plateau(self.situation, patience=PATIENCE * max(2, self.places))
        if reason:
            return reason
        await self._prune(span)
        await self._migrate(span, path)
        await self._fill(span, path)
        await self._diagnose(path)
        await self._prune(span)
        await self._fill(span, path)
        return "" if self.ways else "every branch has ended, and there is no further idea"

    def _said(self, programs: int) -> str:
        said = f"{programs} program{'' if programs == 1 else 's'}, {len(self.ways)} branch{' goes' if len(self.ways) == 1 else 'es go'} on"
        return said + (f"; candidate {self.leader.number} leads, {self.leader.level:.2f}x" if self.leader else "; no program is right yet")

    # a round: all branches write and measure concurrently

    async def _write(self, path: str) -> None:
        turns = Turns(self.ways)
        all_of(await self.run.parallel(*(self._program(way, f"{path}/way-{way.number}", turns) for way in self.ways)))

    async def _program(self, way: Way, path: str, turns: Turns) -> None:
        advice, decision = way.advice, way.decision
        async with self.run.span(path, way.title, "coder") as span:
            try:
                attempt = await self._written(span, way, turns)
            finally:
                turns.end(way)
            if attempt is None:
                return
            await try_attempt(self.run, span, attempt)
            if decision is not None and advice is not None:
                await settle(span, attempt, advice, decision)
        way.take(attempt)

    async def _written(self, span: Span, way: Way, turns: Turns) -> Attempt | None:
        """Returns the branch's next program, which is recorded when the branch's turn comes. If there is none, records the reason on the span and
        returns None."""
        start = way.failed or way.best
        try:
            edit = await self._edit(span, way, start)
        except Unusable as refused:
            await unusable(span, way.view, refused, None, None)
            way.lose()
            return None
        await turns.of(way)
        if edit is None:
            span.skip("no new program")
            way.dry = way.idea is None
            way.lose()
            return None
        same = next((attempt for attempt in self.situation.attempts if attempt.edit.source == edit.source), None)
        if same is not None and same is not way.failed:
            span.skip(f"the same program as candidate {same.number}")
            way.learn(same)
            way.lose()
            return None
        attempt = await put_on_record(span, self.situation, replace(edit, way=way.number), start)
        way.view.refusals.clear()
        return attempt

    async def _edit(self, span: Span, way: Way, start: Attempt | None) -> Edit | None:
        if way.idea is not None and way.failed is None:
            return await realise(span, way.view, self.roles, way.idea, start)
        return await self.roles.coder.write(span, way.view, start, way.advice)

    # choosing the leader

    async def _rank(self, span: Span, path: str) -> None:
        """Goes through the branches in order. A branch's best program takes the lead if it is faster than the leader in a joint measurement."""
        rank = self.situation.rank
        for way in self.ways:
            best, leader = way.best, self.leader
            if best is None or best is leader:
                continue
            if leader is not None:
                if rank(best) <= rank(leader) or (best.number, leader.number) in self.trailed:
                    continue
                wanted = rank(best)[0] > rank(leader)[0]  # true if the user prefers custom kernels regardless of speed
                if not wanted and not measured_beside(best, leader) and not await self._overtakes(span, path, way, best, leader):
                    continue
            self.leader, self.leads = best, way.number
            told = WayChanged(way=way.number, what="leads", round=self.round, candidate=best.number)
            if leader is not None and best.against is not None and best.against.attempt is leader:
                told = told.having(beside=leader.number, speedup=best.against.speedup)
            await self._tell(span, told.having(reason=f"Candidate {best.number} is the fastest of all branches."))

    async def _overtakes(self, span: Span, path: str, way: Way, best: Attempt, leader: Attempt) -> bool:
        """Returns whether another branch's program is faster than the leader by more than the noise when the two are timed alternately on one
        device."""
        async with self.run.span(f"{path}/beside-{way.number}", f"Candidate {best.number} beside candidate {leader.number}", "verifier") as measuring:
            report = await measure(measuring, best.edit.source, None, "quick", leader.edit.source)
            rival = report.timing.rival if report.status == "passed" and report.timing is not None else None
            measuring.summary = verdict(report)
            said = f"{rival.speedup.ratio:.3f}x candidate {leader.number}" if rival is not None else f"not comparable: {verdict(report)}"
            await measuring.say("verifier", f"Candidate {best.number} beside candidate {leader.number}, timed in alternation: {said}.")
        if rival is not None:
            best.against = Against(leader, rival.speedup)
            if rival.speedup.low > 1:
                return True
        self.trailed.add((best.number, leader.number))
        told = WayChanged(way=way.number, what="trails", round=self.round, candidate=best.number, beside=leader.number)
        told = told.having(speedup=rival.speedup) if rival is not None else told
        reason = f"By ratios to eager it seemed faster than candidate {leader.number}; beside it, it is not beyond the noise."
        reason = reason if rival is not None else f"It could not be measured beside candidate {leader.number}."
        await self._tell(span, told.having(reason=reason))
        return False

    # the rules between two rounds, applied in the order of the branches

    async def _prune(self, span: Span) -> None:
        for way in list(self.ways):
            reason = self._over(way)
            if reason:
                self.ways.remove(way)
                told = WayChanged(way=way.number, what="ended", round=self.round, candidate=way.best.number if way.best else None)
                await self._tell(span, told.having(reason=reason[:1000]))

    def _over(self, way: Way) -> str:
        """Returns the reason why a branch ends, or "" if it does not."""
        if way.failed is not None or way.idea is not None:
            return ""
        if way.advice is not None:
            return f"Its diagnosis: {way.advice.reason}" if way.advice.route == "stop" else ""
        if way.dry:
            return "The coder has no further program to propose here."
        if way.best is None:
            if way.own is None and not way.view.attempts and way.lost < STANDS_STILL:
                return ""  # the reply contained no program, so the plan's program is requested again
            return f"None of its programs is correct after {REPAIRS} repairs." if way.view.attempts else "It produced no program."
        if way.lost >= LOST:
            return f"{way.lost} programs in a row yielded no gain."
        ruled = self.roles.verifier.by_rules(way.view, way.best)
        return f"Its profile leaves nothing to gain: {ruled.reason}" if ruled.route == "stop" else ""

    async def _migrate(self, span: Span, path: str) -> None:
        for way in self.ways:
            leader = self.leader
            reason = self._stands_still(way)
            if leader is None or not reason:
                continue
            line = line_of(self.situation, leader)
            known = {attempt.edit.idea.number for attempt in line if attempt.edit.idea is not None}
            idea = way.own if way.own is not None and way.own.number not in known else await self._idea(path)
            way.adopt(line, idea)
            told = WayChanged(way=way.number, what="migrated", round=self.round, candidate=leader.number, of=self.leads)
            await self._tell(span, (told.having(idea=idea.number) if idea is not None else told).having(reason=reason))

    def _stands_still(self, way: Way) -> str:
        """Returns the reason why a branch continues from the best of the others, or "" if it does not."""
        if not way.lost or way.failed is not None or self.leader is None or self.leads == way.number or way.best is self.leader:
            return ""
        if way.best is not None and way.best.number in ancestors_of(self.situation, self.leader):
            return f"Branch {self.leads} has improved the program that this branch began with, and this branch has not."
        if way.lost >= STANDS_STILL and not way.moved:
            return f"{way.lost} programs in a row yielded no gain, so it continues from the best program of branch {self.leads}."
        return ""

    async def _fill(self, span: Span, path: str) -> None:
        """Fills free slots with new branches. Each starts from its own idea and from the best program."""
        while len(self.ways) < self.places and (idea := await self._idea(path)) is not None:
            where = f"candidate {self.leader.number}" if self.leader is not None else "the task"
            await self._open(span, self.leader, idea, f"It tries idea {idea.number} on {where}.")

    async def _open(self, span: Span, start: Attempt | None, idea: Idea | None, reason: str) -> None:
        self.opened += 1
        view = replace(self.situation, attempts=line_of(self.situation, start) if start is not None else [], refusals=[])
        self.ways.append(Way(self.opened, view, idea, idea))
        told = WayChanged(way=self.opened, what="begun", round=self.round, candidate=start.number if start is not None else None)
        told = told.having(of=self.leads) if start is not None else told
        await self._tell(span, (told.having(idea=idea.number) if idea is not None else told).having(reason=reason))

    async def _idea(self, path: str) -> Idea | None:
        """Returns the next untried idea. If there is none, asks the planner for more."""
        if not self.fresh and self.more:
            self.asked += 1
            shown = replace(self.situation, attempts=line_of(self.situation, self.leader) if self.leader is not None else [])
            async with self.run.span(f"{path}/ideas-{self.asked}", "Ideas for further branches", "planner") as span:
                self.fresh = list(await new_ideas(span, shown, self.roles, self.ideas, IDEAS))
                span.summary = f"{len(self.fresh)} ideas"
            self.more = bool(self.fresh)
        return self.fresh.pop(0) if self.fresh else None

    async def _tell(self, span: Span, told: WayChanged) -> None:
        await span.emit(told, agent="engine")

    # what each branch does next

    async def _diagnose(self, path: str) -> None:
        """Diagnoses the branches, concurrently if a model is the judge. The compiler's judge reads notes from people, so it must run in order."""
        ways = [way for way in self.ways if way.idea is None and (way.best is not None or way.failed is not None)]
        if self.run.settings_for(path).judge == "built-in":
            for way in ways:
                await self._judged(way, path)
        else:
            all_of(await self.run.parallel(*(self._judged(way, path) for way in ways)))

    async def _judged(self, way: Way, path: str) -> None:
        roles = replace(self.roles, verifier=ByRules(self.roles.verifier)) if way.failed is not None else self.roles
        subject = way.failed or self._subject(way)
        async with self.run.span(f"{path}/diagnosis-{way.number}", f"Branch {way.number}: diagnose candidate {subject.number}", "verifier") as span:
            way.advice, way.decision = await advise(self.run, span, way.view, roles, subject)
            span.summary = way.advice.diagnosis.bottleneck

    @staticmethod
    def _subject(way: Way) -> Attempt:
        """Returns the program that the judge reads: the branch's latest program if it is correct, or else its best one."""
        latest = way.view.attempts[-1]
        return latest if latest.passed and latest.edit.way == way.number else required(way.best, f"branch {way.number} has no program")
