"""The stand-in's answers: what a good engineer with the built-in compiler would reply to each prompt, or a requested mistake."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

from agents.strategies import CATALOGUE
from compiler import CompilerPlan, Options
from tests.standin import spoiling
from tests.standin.cheats import cheat
from tests.standin.faults import Fault
from tests.standin.programs import LEAVE, Workshop, block, blocks, choices_of, only, own_in, program, steps_of
from tests.standin.reading import Asked

# Strategies that the compiler can apply in addition to those that its first program uses anyway.
CARRIED = ("cuda-graph", "parallel-split", "non-temporal-stores", "block-size")
KNOB = {"cuda": ("block", (256, 512, 128, 1024)), "cpu": ("scan-rows", (4, 16))}
GROUP = re.compile(r"\bg\d+\b")


class Author:
    """Answers prompts, possibly concurrently. Keeps nothing between prompts except the tasks' graphs."""

    def __init__(self) -> None:
        self.workshop = Workshop()

    async def close(self) -> None:
        await self.workshop.capturer.close()

    async def answer(self, asked: Asked, fault: Fault | None) -> str:
        plan = await self.workshop.plan(asked.task, asked.mode, asked.figures)
        return write(asked, plan, fault if fault is not None and not fault.transport else None)


def write(asked: Asked, plan: CompilerPlan, fault: Fault | None) -> str:
    if asked.writes:
        return program_reply(asked, plan, fault)
    reply = {
        "plan": plan_reply, "replan": plan_reply, "ideas": ideas_reply, "cross": idea_reply, "align": idea_reply, "tree": tree_reply,
        "diagnose": diagnosis_reply, "judge": judgement_reply,
    }[asked.situation](asked, plan)  # fmt: skip
    if fault is None:
        return f"```json\n{json.dumps(reply, indent=1)}\n```"
    return spoiling.malformed(reply, fault.token) if fault.kind == "malformed-json" else spoiling.chatty_json(reply)


# Programs


def program_reply(asked: Asked, plan: CompilerPlan, fault: Fault | None) -> str:
    options, strategy = choose(asked, plan)
    text = program(plan, asked.task, options)
    if asked.situation in ("repair",) and same(text, asked.program):  # correct as far as is known, but it did not pass
        options = smaller(plan, options)
        text, strategy = program(plan, asked.task, options), LEAVE
    own = sorted(own_in(plan, options), key=lambda name: int(name[1:]))
    titles = {group.id: group.title for group in plan.groups}
    title = f"Own kernels: {', '.join(titles[name] for name in own)}" if own else "The model as it is"
    head = f"TITLE: {title[:70]}\nCHANGES: {changed(asked, own, strategy)}\nSTRATEGY: {strategy or 'none'}\n\n"
    if fault is None:
        edited = blocks(asked.program, text) if asked.program else None
        return head + (edited or f"```python\n{text}```")
    if fault.kind == "prose":
        return spoiling.chatty_program(text, asked.task)
    if fault.kind == "stale-block":
        return head + block(*spoiling.stale(asked.program))
    if fault.kind == "wrong-file":
        text = spoiling.wrong_file(asked.task)
    elif fault.kind == "cheat":
        text = cheat(fault.name, asked.task, asked.device) or text
    elif fault.kind == "does-not-compile":
        text = spoiling.not_compiling(text, fault.token)
    elif fault.kind == "wrong-result":
        text = spoiling.wrong_result(text)
    return head + f"```python\n{text}```"


def changed(asked: Asked, own: list[str], strategy: str) -> str:
    if asked.situation == "repair":
        return "What the evidence names is mended; the rest stays as it was."
    if asked.situation in ("optimise", "tune"):
        return f"{strategy} on top of the program, nothing else, to take away what the diagnosis names."
    return (
        f"{len(own)} group{'s' if len(own) != 1 else ''} of operators in own kernels, so that what lies between them does not travel through memory."
    )


def choose(asked: Asked, plan: CompilerPlan) -> tuple[Options, str]:
    """Returns the options for the program, and the strategy that names the change."""
    before = choices_of(asked.program)
    everything = Options()
    if asked.situation in ("optimise", "tune"):
        method = first_known(asked.sections.get("Method", ""))
        return with_method(plan, before or everything, method), method
    if asked.situation == "realise":
        idea = asked.sections.get("Idea", "")
        return with_idea(plan, idea), first_known(idea)
    wanted = groups_of_step(asked, plan)
    strategy = next((name for group in plan.own if group.id in wanted for name in group.strategies), "")
    if asked.situation == "step":
        have = own_in(plan, before) if before else up_to(plan, wanted)
        return only(plan, have | wanted, before or everything), strategy
    if asked.situation == "repair":
        return before or only(plan, up_to(plan, wanted), everything), strategy
    return only(plan, wanted, everything), strategy


def groups_of_step(asked: Asked, plan: CompilerPlan) -> set[str]:
    """Returns the groups that the step names, or all groups if it names none."""
    own = {group.id for group in plan.own}
    said = asked.sections.get("Step", "")
    named = set(GROUP.findall(said)) & own
    if not named:
        named = {group.id for group in plan.own if any(re.search(rf"\b{re.escape(name)}\b", said) for name in group.operators)}
    return named or own


def up_to(plan: CompilerPlan, wanted: set[str]) -> set[str]:
    """Returns the groups of a step and of all steps before it, in our order of steps."""
    chosen: set[str] = set(wanted)
    parts = steps_of(plan)
    last = max((at for at, part in enumerate(parts) if wanted & set(part)), default=len(parts) - 1)
    return chosen.union(*parts[: last + 1])


def smaller(plan: CompilerPlan, options: Options) -> Options:
    """Returns the options with the largest of our own groups, by number of operators, left to the library."""
    own = [group for group in plan.own if group.id in own_in(plan, options)]
    if not own:
        return options
    largest = max(own, key=lambda group: len(group.operators))
    return options.with_strategy(LEAVE, largest.id)


def same(one: str, other: str) -> bool:
    return one.split() == other.split()


def first_known(text: str) -> str:
    """Returns the catalogue name that occurs first in a text."""
    places = {found.start(): s.name for s in CATALOGUE if (found := re.search(rf"(?<![\w-]){re.escape(s.name)}(?![\w-])", text))}
    return places[min(places)] if places else ""


def with_method(plan: CompilerPlan, options: Options, method: str) -> Options:
    """Returns the options with one further choice, or the unchanged options if the compiler has no such choice."""
    kind = plan.figures.kind
    if method == "cuda-graph" and kind == "cuda" and not options.on(method):
        return options.with_strategy(method)
    own = [group for group in plan.own if group.id in own_in(plan, options)]
    if method in ("parallel-split", "non-temporal-stores"):
        return next((options.with_strategy(method, group.id) for group in heaviest(own) if not options.on(method, group.id)), options)
    if method == "block-size":
        name, values = KNOB[kind]
        for group in heaviest(own):
            for value in values:
                if value not in (options.knob(name, group.id, 0), 0):
                    return options.with_knob(name, value, group.id)
    if method == LEAVE and own:
        return smaller(plan, options)
    return options


def heaviest(groups: list[Any]) -> list[Any]:
    return sorted(groups, key=lambda group: -group.bytes)


# Replies other than code


def strategies_allowed(asked: Asked) -> set[str]:
    text = asked.sections.get("Strategies", "") + asked.sections.get("Methods", "")
    return {s.name for s in CATALOGUE if re.search(rf"(?<![\w-]){re.escape(s.name)}(?![\w-])", text)}


def plan_reply(asked: Asked, plan: CompilerPlan) -> dict[str, Any]:
    allowed = strategies_allowed(asked)
    groups = {group.id: group for group in plan.groups}
    steps = []
    for number, part in enumerate(steps_of(plan), start=1):
        covered = [groups[name] for name in part]
        strategies = [name for name in dict.fromkeys(s for group in covered for s in group.strategies) if name in allowed]
        steps.append(
            {
                "id": f"s{number}",
                "title": f"Own kernels for {', '.join(part[:6])}" + (" and more" if len(part) > 6 else ""),
                "operators": [f"{group.id}: {group.title}" for group in covered],
                "space": "own kernel",
                "strategies": strategies,
                "contract": "shapes, layouts and dtypes as in the reference",
                "expected": covered[0].expected or "less memory traffic",
                "risk": "the order of sums",
                "reason": covered[0].reason or "most of the traffic is here",
            }
        )
    left = [group for group in plan.groups if group.space != "own kernel"]
    if not steps:
        steps = [left_step(left)]
    return {"summary": f"{len(plan.own)} groups in own kernels, {len(left)} left to libraries and PyTorch.", "steps": steps}


def left_step(left: list[Any]) -> dict[str, Any]:
    return {
        "id": "s1", "title": "Leave the model as it is", "operators": [group.title for group in left], "space": "pytorch", "strategies": [],
        "contract": "as in the reference", "expected": "as in eager", "risk": "none", "reason": "no kernel would save anything here",
    }  # fmt: skip


def tree_reply(asked: Asked, plan: CompilerPlan) -> dict[str, Any]:
    """Returns a script that adds the next ideas below the best program, or below the root, and drops nothing."""
    told = asked.sections.get("Tree", "")
    revision, best = re.search(r"Revision (\d+)", told), re.search(r"^ *- (n\d+): .*\(the best program\)$", told, re.MULTILINE)
    fresh = [one for one in ideas_of(asked, plan) if one["title"] not in told]
    adds = [{"op": "add", "parent": best[1] if best else "n0", **one} for one in fresh[:4]]
    return {"revision": int(revision[1]) if revision else 0, "ops": adds}


def ideas_reply(asked: Asked, plan: CompilerPlan) -> dict[str, Any]:
    """Returns ideas that the compiler can realise: each states how many operators get their own kernels, with one further choice."""
    found = re.search(r"At most (\d+) ideas", asked.sections.get("Reply", ""))
    count = int(found[1]) if found else 4
    known = asked.sections.get("Ideas known already", "")
    return {"ideas": [one for one in ideas_of(asked, plan) if one["title"] not in known][:count]}


def ideas_of(asked: Asked, plan: CompilerPlan) -> list[dict[str, Any]]:
    allowed = strategies_allowed(asked)
    parts = steps_of(plan)
    ideas = []
    for extra in ("", *(name for name in CARRIED if name in allowed)):
        for covered in dict.fromkeys((" ".join(sum(parts, [])), " ".join(parts[0]) if parts else "")):
            title = f"Kernels for {covered[:40] or 'nothing'}" + (f" with {extra}" if extra else "")
            ideas.append(idea(plan, covered.split(), [extra] if extra else [], title))
    return ideas


def idea(plan: CompilerPlan, covered: list[str], extra: list[str], title: str) -> dict[str, Any]:
    groups = [group for group in plan.own if group.id in covered]
    saved = sum(group.eager_bytes - group.bytes for group in groups)
    words = "; ".join(f"{group.id} ({group.title}) in one kernel" for group in groups[:6]) or "nothing in own kernels"
    text = f"{words}. The rest stays with the libraries. This saves {saved / 1e6:.1f} MB of traffic a call." + (
        f" Then {', '.join(extra)}." if extra else ""
    )
    strategies = list(dict.fromkeys([*extra, *(name for group in groups for name in group.strategies)]))
    return {"title": title, "text": text, "strategies": strategies, "expected": round(1.1 + 0.1 * len(extra), 2)}


def with_idea(plan: CompilerPlan, text: str) -> Options:
    """Returns the options with the groups and further strategies that the idea names."""
    named = set(GROUP.findall(text)) & {group.id for group in plan.own}
    options = only(plan, named, Options()) if named else Options()
    for name in CARRIED:
        if re.search(rf"(?<![\w-]){name}(?![\w-])", text):
            options = with_method(plan, options, name)
    return options


def idea_reply(asked: Asked, plan: CompilerPlan) -> dict[str, Any]:
    """Answers a request about ideas. Crossing combines the groups and the further strategies of both ideas; aligning copies the description in the
    program itself."""
    if asked.situation == "align":
        choices = choices_of(asked.program) or Options()
        covered, text = own_in(plan, choices), choices.model_dump_json(exclude_defaults=True)
    else:
        text = asked.sections.get("First idea", "") + "\n" + asked.sections.get("Second idea", "")
        covered = set(GROUP.findall(text)) & {group.id for group in plan.own}
    extra = [name for name in CARRIED if re.search(rf"(?<![\w-]){name}(?![\w-])", text)]
    ordered = sorted(covered, key=lambda name: int(name[1:]))
    return idea(plan, ordered, extra, f"Kernels for {' '.join(ordered)[:40] or 'nothing'}" + (f" with {', '.join(extra)}" if extra else ""))


def diagnosis_reply(asked: Asked, plan: CompilerPlan) -> dict[str, Any]:
    """Returns the next step if there is one, otherwise an allowed method that changes the program, and otherwise a stop."""
    routes = asked.sections.get("Reply", "").partition("open now:")[2].partition("\n")[0]
    said = [line for line in asked.sections.get("Diagnosis", "").splitlines() if re.search(r"\d", line)]
    bottleneck = " ".join((said or ["the figures name no bottleneck"])[0].strip("-* ").split()[:28])
    reply = {"bottleneck": bottleneck, "route": "stop", "method": None, "change": "nothing worthwhile", "expected": None, "documents": []}
    if "next-step" in routes:
        return {**reply, "route": "next-step", "change": "the next step of the plan"}
    before = choices_of(asked.program) or Options()
    for method in (name for name in CARRIED if name in strategies_allowed(replace_methods(asked)) and "optimise" in routes):
        if with_method(plan, before, method) != before and method not in asked.sections.get("What earlier attempts taught", ""):
            return {**reply, "route": "optimise", "method": method, "change": f"{method} in the heaviest kernel", "expected": 1.1}
    return reply


def replace_methods(asked: Asked) -> Asked:
    """Keeps only the Methods section, so that the catalogue is ignored."""
    return replace(asked, sections={"Methods": asked.sections.get("Methods", "")})


def judgement_reply(asked: Asked, plan: CompilerPlan) -> dict[str, Any]:
    routes = asked.sections.get("Reply", "").partition("open now:")[2].partition("\n")[0]
    said = next((line.strip("-* ") for line in asked.evidence.splitlines() if len(line.strip()) > 20), "the program did not pass")
    route = next((name for name in ("repair", "next-step", "re-plan", "stop") if name in routes), "stop")
    return {
        "defect": " ".join(said.split()[:28]),
        "why": "That is what the evidence says.",
        "fix": "Compute what the reference computes, with every name declared, and without a shortcut.",
        "route": route,
        "documents": [],
    }
