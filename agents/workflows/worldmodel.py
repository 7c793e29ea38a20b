"""K-Search's world model with beliefs based on evidence: a model edits a decision tree with scripts, and a rule chooses what to try next.

Taken from the paper and its code (arXiv 2602.19128): open nodes of a tree are ideas and closed nodes are programs, edit scripts are strictly
validated, nodes are chosen without a model, and the tree is edited when it offers too little to choose from. Our own additions: models never assign
scores. The expected gain of a node follows from how well its strategies met their expected gains, both in earlier runs and in this one
(`agents.decisions.belief`). The next node is chosen by Thompson sampling. A failed node stays open with its diagnosis for two more attempts, and the
tree is edited before the last one. Every prediction is compared with the actual result.
"""

from __future__ import annotations

from dataclasses import replace
from math import log
from random import Random

from agents.decisions.belief import Belief, Posterior, Prediction, Track
from agents.decisions.script import Edited
from agents.decisions.tree import MOST_TRIES, ROOT, Node, Tree
from agents.decisions.view import Program, View, changed, interval, short, spread
from agents.diagnosis import Diagnosis
from agents.memory.experience import recall
from agents.memory.within import realised
from agents.payloads import DecisionMade, DiagnosisMade, Failure, IdeaProposed
from agents.roles.promises import UNMEASURED, learned
from agents.roles.situation import Advice, Attempt, Edit, Idea, Roles, Situation, Unusable
from agents.run import Engine, Finish
from agents.span import Span
from agents.stopping import enough, fraction_of_floor, plateau
from agents.strategies import combined
from agents.strategies.ledger import GAIN
from agents.workflows.attempting import settle, try_edit, unusable
from agents.workflows.solving import solve
from agents.workflows.translating import realise, to_repair

READY = 2  # minimum number of nodes that can be tried; with only one, there is no choice
PATIENCE = 20  # number of programs without a gain after which the search is on a plateau, as in `branch`
SILENT = 6  # maximum number of attempts in a row without any program
BARREN = 2  # after this many edits in a row that changed nothing, no more are requested as long as something can be tried
MOST_ATTEMPTS = 200


async def worldmodel(run: Engine) -> Finish:
    async def search(run: Engine, situation: Situation, roles: Roles) -> str:
        return await Search(run, situation, roles).to_the_end()

    return await solve(run, search)


class Search:
    """The state of the search. It follows entirely from the trace, so a resumed run makes the same choices."""

    def __init__(self, run: Engine, situation: Situation, roles: Roles):
        self.run, self.situation, self.roles = run, situation, roles
        self.tree, self.track = Tree(), Track()
        self.left_out: list[str] = []  # operations that were left out of the last script
        self.attempts = self.edits = self.silent = self.barren = 0
        self.edited_at = -1  # tree revision after the last edit
        self.first = ""  # a node not created by a script, used if the first script added nothing
        self._believed: tuple[tuple[int, int], dict[str, Belief]] = ((-1, -1), {})

    async def to_the_end(self) -> str:
        """Makes attempts until there is a reason to stop, and returns the reason."""
        while self.attempts < MOST_ATTEMPTS:
            if reason := enough(self.run, self.situation) or plateau(self.situation, patience=PATIENCE):
                return reason
            if why := self.wants_an_edit():
                await self.edit(why)
            if not self.tree.frontier and self.attempts:
                return "there is no further idea"
            if not self.tree.frontier:
                self.first = self.tree.plant("The first program", "The task as the plan has it.").id
            await self.attempt(self.chosen())
            if self.silent >= SILENT:
                return f"the last {SILENT} attempts yielded no program"
        return f"{MOST_ATTEMPTS} attempts are used"

    # the tree

    def wants_an_edit(self) -> str:
        """Returns the reason for asking a model for a script now, or "" if there is none. A model is never asked twice about the same tree."""
        ready = self.tree.frontier
        if self.tree.revision == self.edited_at or (ready and self.barren >= BARREN):
            return ""
        if len(ready) < READY:
            return "only one node can be tried" if ready else "nothing can be tried yet" if not self.attempts else "nothing is left to try"
        beliefs, found = self.beliefs(), self.situation.best
        level = found.level if found is not None else 0.0
        if not any(self.level(node.parent) * beliefs[node.id].gain >= GAIN * level for node in ready):
            return f"no node is believed to gain on the best program, {self.best}"
        last = next((node for node in ready if node.tries == MOST_TRIES - 1), None)
        return f"{last.id} has one attempt left" if last is not None and last.failed == self.newest else ""

    @property
    def newest(self) -> int | None:
        return self.situation.attempts[-1].number if self.situation.attempts else None

    @property
    def best(self) -> str:
        """Returns the node with the best program, or the root if there is none yet."""
        found = self.situation.best
        node = self.tree.node_of(found.number) if found is not None else None
        return node.id if node is not None else ROOT

    async def edit(self, why: str) -> None:
        """Requests one script and carries out its valid part. If the model returned no script, the tree stays unchanged."""
        self.edits += 1
        async with self.run.span(f"edit-{self.edits}", f"Edit the tree: {why}", "planner") as span:
            await self.remember(span)
            found = await self.script(span, why)
            self.edited_at = self.tree.revision
            self.barren = 0 if found is not None and found.kept else self.barren + 1
            if found is None:
                return
            self.tree, self.left_out, self.edited_at = found.tree, found.left_out, found.tree.revision
            for node in (self.tree.nodes[one] for one in found.new):
                idea = IdeaProposed(
                    situation="tree", idea=node.number, title=node.title[:300], text=node.text[:4000], strategies=list(node.strategies)[:24],
                    expected=node.promise,
                )  # fmt: skip
                await span.emit(idea, agent="planner")
            span.summary = f"{found.kept} changes, {len(self.tree.frontier)} of {len(self.tree.open)} open nodes can be tried"
            await span.emit(changed(self.view(why), "edited", why), agent="planner")

    async def script(self, span: Span, why: str) -> Edited | None:
        try:
            return await self.roles.planner.edit_tree(span, self.situation, self.view(why))
        except Unusable as refused:
            span.fail(f"no usable script: {refused.reason}"[:500])
            await span.emit(Failure(message=f"no usable script: {refused.reason}"[:4000], where=span.path, kept="the tree as it was"))
            return None

    async def remember(self, span: Span) -> None:
        """Looks up how well strategies met their expected gains in earlier runs, if the planner has not done so already."""
        if self.edits > 1 or self.run.experience is None or self.situation.records:
            return
        device = await span.effect("device", self.run.describe_device)
        self.situation.records = (await recall(span, self.situation, str((device or {}).get("device_model") or ""), list)).records

    # beliefs

    def beliefs(self) -> dict[str, Belief]:
        """Returns the current belief about every open node. Beliefs change only with a verdict or a change of the tree."""
        now = sum(attempt.report is not None for attempt in self.situation.attempts), self.tree.revision
        if self._believed[0] != now:
            posterior = Posterior(learned(self.situation.records, self.situation.attempts))
            found = {node.id: posterior.of(node.strategies, node.promise, self.ceiling(node)) for node in self.tree.open}
            self._believed = now, found
        return self._believed[1]

    def ceiling(self, node: Node) -> float | None:
        """Returns the gain that would bring the node's parent program, or the task's own model, to its floor."""
        program, admission, plan = self.program(node.parent), self.situation.admission, self.situation.plan
        if program is not None:
            fraction = fraction_of_floor(self.situation, program)
            return 1 / fraction if fraction else None
        eager_ms, floor_ms = (admission.eager_ms if admission is not None else None), (plan.floor_ms if plan is not None else None)
        return eager_ms / floor_ms if eager_ms and floor_ms else None

    def program(self, node: str | None) -> Attempt | None:
        number = self.tree.nodes[node].candidate if node is not None else None
        return next((attempt for attempt in self.situation.attempts if attempt.number == number), None)

    def level(self, node: str | None) -> float:
        program = self.program(node)
        return program.level if program is not None else 1.0

    def view(self, why: str = "") -> View:
        done = {node.id: program for node in self.tree.nodes.values() if (program := self.program(node.id)) is not None}
        programs = {name: Program(program.level, realised(program)) for name, program in done.items()}
        return View(self.tree, self.beliefs(), programs, self.best, why, self.left_out, self.track.marks)

    # the choice, and its result

    def chosen(self) -> Node:
        """Thompson sampling: returns the node whose sampled gain yields the fastest program. Each attempt draws anew, depending only on the run's
        seed."""
        draw, beliefs = Random(f"{self.run.settings.seed}/worldmodel/{self.attempts}"), self.beliefs()
        drawn = {node.id: log(self.level(node.parent)) + beliefs[node.id].drawn(draw) for node in self.tree.frontier}
        return max(self.tree.frontier, key=lambda node: drawn[node.id])

    async def attempt(self, node: Node) -> None:
        """Writes one program for the node: a translation of it, or a repair of its previous program."""
        self.attempts += 1
        before = self.beliefs()
        belief = node.predicted = before[node.id]
        async with self.run.span(f"attempt-{self.attempts}", f"{node.id}: {node.title}"[:200], "coder") as span:
            believed = f"believed {spread(interval(belief))} on {self.level(node.parent):.2f}x"
            reason = f"{node.id} of {len(self.tree.frontier)} nodes that can be tried: {believed}"
            await span.emit(changed(self.view(), "chosen", reason, node=node.id), agent="engine")
            advice = self.advice(node, reason)
            decision = DecisionMade(route=advice.route, reason=advice.reason, expected=advice.expected, method=advice.method)
            decided = await span.emit(decision, agent="engine")
            attempt = await self.written(span, node, advice)
            self.silent = 0 if attempt is not None else self.silent + 1
            if attempt is not None:
                await settle(span, attempt, advice, decided.seq)
                await self.learn(span, node, attempt, belief)
            learned_by = changed(self.view(), "learned", self.outcome(node, attempt), node=node.id, before=before)
            if attempt is not None and attempt.verdict.status not in UNMEASURED:
                learned_by = learned_by.having(predicted=interval(belief), came=round(came(attempt), 4))
            await span.emit(learned_by, agent="engine")

    def advice(self, node: Node, reason: str) -> Advice:
        failed = next((attempt for attempt in self.situation.attempts if attempt.number == node.failed), None)
        method = combined(node.strategies) or None
        if failed is not None:
            return replace(to_repair(failed), reason=f"Candidate {failed.number} did not pass. {reason}", method=method, expected=node.promise)
        plain = Diagnosis(bottleneck="none", text=node.text[:1000])
        return Advice(plain, "optimise", reason, method, node.promise)

    async def written(self, span: Span, node: Node, advice: Advice) -> Attempt | None:
        """Returns the verified program. If there is none, records that on the node and returns None."""
        failed = next((attempt for attempt in self.situation.attempts if attempt.number == node.failed), None)
        parent = failed or self.program(node.parent)
        try:
            edit = await self.edit_of(span, node, parent, advice if failed is not None else None)
        except Unusable as refused:
            await unusable(span, self.situation, refused, advice, None)
            self.tree.tried_in_vain(node, None, refused.reason)
            return None
        if edit is None:
            span.skip("no new program")
            node.diagnosis = "no new program"
            self.tree.give_up(node)
            return None
        return await try_edit(self.run, span, self.situation, edit, parent)

    async def edit_of(self, span: Span, node: Node, parent: Attempt | None, repair: Advice | None) -> Edit | None:
        if repair is not None or node.id == self.first:
            return await self.roles.coder.write(span, self.situation, parent, repair)
        idea = Idea(node.title, node.text, node.strategies, node.promise, number=node.number, data=node.data)
        return await realise(span, self.situation, self.roles, idea, parent)

    async def learn(self, span: Span, node: Node, attempt: Attempt, belief: Belief) -> None:
        """Updates the node and records how its prediction compares with the verdict."""
        found = self.roles.verifier.by_rules(self.situation, attempt).diagnosis
        await span.emit(DiagnosisMade(candidate=attempt.number, **found.payload()), agent="verifier")
        if attempt.verdict.status not in UNMEASURED:
            self.track.made.append(Prediction(belief, node.promise, came(attempt)))
        if attempt.passed:
            node.diagnosis = found.text
            self.tree.settled(node, attempt.number)
            if came(attempt) >= GAIN:
                self.tree.carry_over(node)
        else:
            self.tree.tried_in_vain(node, attempt.number, found.text)

    def outcome(self, node: Node, attempt: Attempt | None) -> str:
        if attempt is None:
            said = "it produced no program"
        elif attempt.passed:
            gain = realised(attempt)
            said = f"candidate {attempt.number}" + (f" gained {gain:.2f}x" if gain is not None else " passed, its gain unknown")
        else:
            said = f"candidate {attempt.number}: {attempt.verdict.status.replace('_', ' ')}"
        left = MOST_TRIES - node.tries
        more = (
            ""
            if node.state == "done"
            else "; it is given up"
            if node.state == "given up"
            else f"; it stays open, {left} of {MOST_TRIES} attempts left"
        )
        return f"{node.id}, {short(node.title)}: {said}{more}"


def came(attempt: Attempt) -> float:
    """Returns the gain over the parent's program, or 1 if there is no correct program, because the parent's program is then kept."""
    gain = realised(attempt)
    return gain if gain else 1.0
