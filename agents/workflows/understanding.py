"""Prepares every search: the task's graph, a profile of the reference, and a plan."""

from __future__ import annotations

from dataclasses import replace

from agents.roles.situation import Roles, Situation, Unusable
from agents.run import Engine
from agents.span import Ended


async def understand(run: Engine, situation: Situation) -> None:
    """Captures the graph and the profile of the reference, which are the only information that planners get about a task's behaviour."""
    async with run.span("capture", "Capture the graph", "verifier") as span:
        capture = (await span.capture()).result.capture
        if capture is None:
            raise Ended("failed", "the verifier gave no capture")
        situation.capture = capture
        if capture.graph is None:
            span.fail(f"the model could not be captured: {capture.reason}"[:500])
            await span.say("verifier", f"The graph could not be captured: {capture.reason}")
        else:
            operators = sum(node.op != "getitem" for node in capture.graph.nodes)
            span.summary = f"{operators} operator{'s' if operators != 1 else ''}"
            parts, left = len(capture.graph.parts), capture.graph.left
            where = f", in {parts} part{'s' if parts != 1 else ''} of forward" if parts else " in the functional ATen graph"
            said = [f"Captured {span.summary}{where}."]
            said += [f" Left in Python: {'; '.join(left)}."[:1500]] if left else []
            await span.say("verifier", *said)
    if run.settings.profiles != "all" and run.settings.planner == "built-in":
        return
    async with run.span("reference", "Profile the reference", "verifier") as span:
        profile = (await span.profile(None, None)).result.profile
        situation.reference = profile
        if profile is None:
            span.skip("no profile of the reference")
        else:
            top = max(profile.kernels, key=lambda k: k.share, default=None)
            span.summary = f"{profile.wall_us_per_iteration:.0f} us a call by {profile.tool}"
            takes = f"The reference takes {profile.wall_us_per_iteration:.0f} us a call under {profile.tool}"
            takes += f", most of it ({100 * top.share:.0f} %) in {top.name[:100]}." if top else "."
            await span.say("verifier", takes)


async def plan(run: Engine, situation: Situation, roles: Roles, path: str = "plan", title: str = "Plan") -> None:
    """Makes the first plan, or a new one. If a model cannot produce a usable new plan, the old one is kept and the reason is recorded."""
    async with run.span(path, title, "planner") as span:
        try:
            proposed = await roles.planner.plan(span, situation)
        except Unusable as refused:
            span.fail(f"no usable plan: {refused.reason}"[:500])
            await span.say("planner", f"The plan does not change. {refused.reason}")
            return
        if proposed.says:
            await span.say("planner", *proposed.says)
        situation.plan = replace(proposed, payload=await span.propose_plan(proposed.payload))
        span.summary = situation.plan.payload.get("summary", "")
