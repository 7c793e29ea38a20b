"""StitchCUDA's loop: plan, write, verify, profile, diagnose, and let each further program answer the diagnosis of the one before.

From the paper (arXiv 2603.02637): the three roles, the profile before the plan, one method a round. Ours: the stopping rules, which are
shown with their figures, and the confirmation of the winner in tier full on fresh seeds.
"""

from __future__ import annotations

from dataclasses import replace

from agents.budget import OutOfBudget
from agents.roles import Roles, roles_for
from agents.roles.situation import Advice, Attempt, Situation
from agents.run import Engine, Finish
from agents.span import Ended
from agents.workflows.measuring import admit, measure, verdict

MAX_REPAIRS = 5  # in a row
PLATEAU = 3  # programs in a row that bring less than PLATEAU_GAIN
PLATEAU_GAIN = 1.02
MAX_CONFIRMED = 3  # winners that are tried in tier full before the run gives up


async def stitch(run: Engine) -> Finish:
    situation = Situation(run.task_source, run.task_name, run.settings)
    roles = run.roles or roles_for(run.settings)
    situation.admission = await admit(run)
    await understand(run, situation)
    await plan(run, situation, roles)
    try:
        reason, spent = await search(run, situation, roles), False
    except OutOfBudget as error:
        reason, spent = f"{error}, so the search ends here", True
    return await confirm(run, situation, reason, spent)


async def understand(run: Engine, situation: Situation) -> None:
    """Graph and profile of the reference: all that planners ever see of a task at run time."""
    async with run.span("capture", "Capture the graph", "verifier") as span:
        capture = (await span.capture()).result.capture
        if capture is None:
            raise Ended("failed", "the verifier gave no capture")
        situation.capture = capture
        if capture.graph is None:
            span.fail(f"torch.export could not capture the model: {capture.reason}"[:500])
            await span.say("verifier", f"The graph could not be captured: {capture.reason}")
        else:
            operators = sum(node.op != "getitem" for node in capture.graph.nodes)
            span.summary = f"{operators} operator{'s' if operators != 1 else ''}"
            await span.say("verifier", f"Captured {span.summary} in the functional ATen graph.")
    async with run.span("reference", "Profile the reference", "verifier") as span:
        profile = (await span.profile(None, None)).result.profile
        situation.reference = profile
        if profile is None:
            span.skip("no profile of the reference")
        else:
            top = max(profile.kernels, key=lambda k: k.share, default=None)
            span.summary = f"{profile.wall_us_per_iteration:.0f} us a call by {profile.tool}"
            said = f"The reference takes {profile.wall_us_per_iteration:.0f} us a call under {profile.tool}"
            said += f", most of it ({100 * top.share:.0f} %) in {top.name[:100]}." if top else "."
            await span.say("verifier", said)


async def plan(run: Engine, situation: Situation, roles: Roles) -> None:
    async with run.span("plan", "Plan", "planner") as span:
        situation.plan = await roles.planner.plan(span, situation)
        await span.say("planner", *situation.plan.says)
        await span.emit("plan.proposed", situation.plan.payload)
        span.summary = situation.plan.payload.get("summary", "")


async def search(run: Engine, situation: Situation, roles: Roles) -> str:
    """Programs until one of the reasons to stop holds; returns that reason."""
    advice: Advice | None = None
    decision: int | None = None  # seq
    step = repairs = 0
    while True:
        step += 1
        title = f"Answer the diagnosis: {advice.method}" if advice and advice.method else "Write the program"
        async with run.span(f"step-{step}", title, "coder") as span:
            attempts = 0
            while True:
                attempts += 1
                parent = situation.attempts[-1] if advice and advice.route == "repair" else situation.best
                result = await attempt_once(run, situation, roles, f"{span.path}/attempt-{attempts}", parent, advice, decision)
                if result is None:
                    span.skip("nothing left to write")
                    return "the coder has nothing left to write"
                attempt, advice, decision = result
                repairs = repairs + 1 if advice.route == "repair" else 0
                if advice.route != "repair" or repairs > MAX_REPAIRS:
                    break
            if attempt.passed:
                span.summary = verdict(attempt.report)
            else:
                span.fail(verdict(attempt.report))
        if repairs > MAX_REPAIRS:
            return f"{MAX_REPAIRS} repairs in a row did not help"
        if advice.route == "stop":
            return advice.reason


async def attempt_once(
    run: Engine, situation: Situation, roles: Roles, path: str, parent: Attempt | None, advice: Advice | None, decision: int | None
) -> tuple[Attempt, Advice, int] | None:
    """One candidate: written, verified, profiled, diagnosed; and the decision what comes next."""
    number = len(situation.attempts) + 1
    async with run.span(path, f"Candidate {number}", "coder") as span:
        edit = await roles.coder.write(span, situation, parent, advice)
        if edit is None:
            span.skip("the coder has no further program")
            return None
        await span.say("coder", *edit.says)
        attempt = Attempt(number, parent.number if parent else None, edit)
        await span.propose(
            edit.source, number=number, parent=attempt.parent, title=edit.title, step=edit.step, changes=edit.changes, strategy=edit.strategy
        )
        situation.attempts.append(attempt)
        attempt.report = await measure(span, edit.source, number, "quick")
        if attempt.passed:
            attempt.profile = (await span.profile(edit.source, number)).result.profile
            span.summary = verdict(attempt.report)
        else:
            span.fail(verdict(attempt.report))
        if decision is not None and advice is not None:
            realised = attempt.report.speedup.ratio / parent.report.speedup.ratio if attempt.passed and parent and parent.passed else None
            outcome = f"candidate {number}: {verdict(attempt.report)}"[:1000]
            payload = {"of": decision, "route": advice.route, "reason": outcome, "expected": advice.expected, "realised": realised}
            await span.emit("decision.made", payload, agent="engine")
        following = await roles.verifier.advise(span, situation, attempt)
        diagnosis = following.diagnosis
        await span.emit("diagnosis.made", {"candidate": number, **diagnosis.model_dump(), "method": following.method}, agent="verifier")
        following = stopping(run, situation, following)
        await span.say("verifier", diagnosis.text + "\n", following.reason)
        payload = {"route": following.route, "reason": following.reason, "expected": following.expected, "method": following.method}
        decided = await span.emit("decision.made", payload, agent="verifier")
    return attempt, following, decided.seq


def stopping(run: Engine, situation: Situation, advice: Advice) -> Advice:
    """The engine's own reasons to stop, before any advice: the target, or a plateau."""
    best, target = situation.best, run.settings.target
    if best is None or advice.route == "stop":
        return advice
    if target is not None and best.score >= target:
        low = f"the lower bound of candidate {best.number} is {best.score:.2f}x"
        return replace(advice, route="stop", method=None, expected=None, reason=f"The target of {target:g}x is reached: {low}.")
    tail = situation.attempts[-PLATEAU:]
    earlier = [a for a in situation.attempts[:-PLATEAU] if a.passed]
    if len(tail) == PLATEAU and earlier:
        ceiling = max(a.report.speedup.ratio for a in earlier) * PLATEAU_GAIN
        if all(not a.passed or a.report.speedup.ratio < ceiling for a in tail):
            said = f"The last {PLATEAU} programs brought less than {100 * (PLATEAU_GAIN - 1):.0f} % over the best before them: a plateau."
            return replace(advice, route="stop", method=None, expected=None, reason=said)
    return advice


async def confirm(run: Engine, situation: Situation, reason: str, spent: bool) -> Finish:
    """Measure the winner again, against all baselines and on fresh seeds; where it does not hold, the next one."""
    ranked = sorted((a for a in situation.attempts if a.passed), key=lambda a: -a.score)
    if not ranked:
        last = situation.attempts[-1].report if situation.attempts else None
        return Finish(
            "out_of_budget" if spent else "failed", f"no program passed; {reason}" + (f" (the last: {verdict(last)})"[:1500] if last else "")
        )
    try:
        return await confirm_one_of(run, ranked[:MAX_CONFIRMED], reason)
    except OutOfBudget as error:
        best = ranked[0]
        return Finish("out_of_budget", f"{error}: candidate {best.number} ({verdict(best.report)}, tier quick) is not confirmed", best.number)


async def confirm_one_of(run: Engine, ranked: list[Attempt], reason: str) -> Finish:
    async with run.span("confirm", "Confirm the winner on fresh seeds", "verifier") as span:
        for attempt in ranked:
            report = await measure(span, attempt.edit.source, attempt.number, "full")
            await span.say("verifier", f"Candidate {attempt.number}, confirmed against all baselines: {verdict(report)}.")
            if report.status != "passed" or report.speedup is None:
                continue
            if attempt.profile is None:
                await span.profile(attempt.edit.source, attempt.number)
            span.summary = verdict(report)
            outcome = "improved" if report.speedup.low > 1 else "matched"
            said = "is faster" if outcome == "improved" else "is correct, but not faster"
            return Finish(outcome, f"candidate {attempt.number} {said}: {verdict(report)}. {reason}", attempt.number, report.speedup)
        span.fail("no candidate held on fresh seeds")
    best = ranked[0].number if report.status == "inconclusive" else None
    return Finish("failed", f"no candidate was confirmed: {verdict(report)}"[:2000], best)
