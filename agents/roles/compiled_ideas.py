"""The built-in Planner's ideas. An idea is a set of compiler choices (a strategy on or off, a number), independent of the program that implements it.

An idea's `data` maps places to choices: `{"g2 row-cache": 0, " cuda-graph": 1, "g2 block": 512}`. The groups come before the space; groups that share
a kernel change its numbers together, as in "g2,g5 block". A choice for the whole program has no groups.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from agents.decisions.script import MOST_NEW, Add, Edited, ScriptReply, edited
from agents.decisions.tree import ROOT
from agents.decisions.view import View
from agents.roles.compiled import Compiled
from agents.roles.promises import trusted
from agents.roles.situation import Attempt, Idea, Situation, required
from agents.strategies import CATALOGUE
from compiler import Options
from compiler.graph.network import Network
from compiler.kernel.builder import Refused
from compiler.kernel.fuse import build
from compiler.planning.knobs import numbers
from compiler.planning.moves import moves

Choices = dict[str, int]
STRATEGIES = ("row-cache", "parallel-split", "non-temporal-stores", "leave-to-library", "cuda-graph")
OWN = "own"  # name of the compiler's own choice within a script
NUMBER = "block-size"  # catalogue name for changes of numbers
MOST_GROUPS = 6  # number of groups whose choices are varied: those with the most memory traffic
TRIES = 200  # number of draws made to find the requested number of new ideas


def ideas(situation: Situation, count: int, known: Sequence[Idea]) -> list[Idea]:
    """Returns ideas in this order: the compiler's own choice, the choices with the largest gains expected by its moves, other single choices, and
    random combinations."""
    compiled: Compiled = situation.planned.data
    seen = {frozenset(idea.data.items()) for idea in known if isinstance(idea.data, dict)}
    found: list[Idea] = []
    for choices, expected in _stream(compiled, situation, len(known)):
        key = frozenset(choices.items())
        if key not in seen and allowed(situation, choices):
            seen.add(key)
            found.append(idea_of(compiled, choices, expected))
        if len(found) >= count:
            break
    return found


def cross(situation: Situation, first: Idea, second: Idea) -> Idea:
    """Returns the choices that both ideas share, plus every other choice of either idea with probability one half. If the result equals a parent, one
    choice is added."""
    compiled: Compiled = situation.planned.data
    a, b = (dict(idea.data) if isinstance(idea.data, dict) else {} for idea in (first, second))
    draw = random.Random(f"{situation.settings.seed}/{first.number}/{second.number}/{sorted(a.items())}/{sorted(b.items())}")
    a, b = (kept(situation, choices) for choices in (a, b))
    child: Choices = {}
    for place in dict.fromkeys([*a, *b]):
        if place in a and place in b:
            child[place] = draw.choice((a[place], b[place]))
        elif draw.random() < 0.5:
            child[place] = a[place] if place in a else b[place]
    if child in (a, b):
        child = {**a, **b}
    if child in (a, b):
        others = [{**child, place: value} for place, value in _singles(compiled, situation) if allowed(situation, {place: value})]
        child = draw.choice([other for other in others if other not in (a, b, child)] or [child])
    return idea_of(compiled, child, None, (first.number, second.number))


def edit_tree(situation: Situation, view: View) -> Edited:
    """Returns the compiler's ideas as nodes under the best program, because each idea is a choice added to an existing program. The compiler's own
    choice is the first node."""
    known = [Idea(node.title, node.text, data=node.data) for node in view.tree.nodes.values()]
    found, best, adds = ideas(situation, MOST_NEW, known), situation.best, []
    below = view.best if best is not None else OWN if any(not idea.data for idea in found) else ROOT
    for idea in found:
        promise = idea.expected / best.speedup.ratio if idea.expected and best is not None else None
        place = {"parent": below} if idea.data else {"parent": ROOT, "id": OWN}
        said = {"title": idea.title, "text": idea.text, "strategies": list(idea.strategies), "expected": promise}
        adds.append(Add.model_validate({"op": "add", **place, **said}).carrying(idea.data))
    script = ScriptReply(revision=view.tree.revision, ops=[*view.room_for(len(adds)), *adds])
    return edited(view.tree, script, {strategy.name for strategy in CATALOGUE})


def strategy_of(place: str) -> str:
    """Returns the catalogue name of the strategy that a choice belongs to."""
    name = place.partition(" ")[2]
    return name if name in STRATEGIES else NUMBER


def allowed(situation: Situation, choices: Choices) -> bool:
    return kept(situation, choices) == choices


def kept(situation: Situation, choices: Choices) -> Choices:
    """Returns the choices that people's notes do not forbid."""
    return {place: value for place, value in choices.items() if situation.orders.refuses(strategy_of(place)) is None}


def align(situation: Situation, idea: Idea, attempt: Attempt) -> Idea:
    """Returns the choices that generated the surviving program, minus those that a repair removed and with the tuned numbers."""
    return idea_of(situation.planned.data, choices_of(attempt.edit.options), attempt.speedup.ratio if attempt.passed else None, (idea.number,))


def realised(idea: Idea, base: Options) -> Options:
    """Returns the base options with the idea's choices applied. If the idea is only text written by a model, applies those of its strategies that the
    compiler knows by name."""
    options = base
    choices = idea.data if isinstance(idea.data, dict) else {f" {name}": 1 for name in idea.strategies if name in STRATEGIES}
    for place, value in choices.items():
        groups, _, name = place.partition(" ")
        for group in groups.split(","):
            options = options.choose(name, group, bool(value)) if name in STRATEGIES else options.with_knob(name, value, group)
    return options


def choices_of(options: Options | None) -> Choices:
    """Returns the choices in which these options differ from the compiler's own."""
    found: Choices = {}
    if options is None:
        return found
    plain = Options()
    for name in STRATEGIES:
        for group in ("", *options.groups):
            if options.on(name, group) != plain.on(name, group) and (not group or options.on(name, group) != options.on(name)):
                found[f"{group} {name}"] = int(options.on(name, group))
    for group, chosen in options.group_knobs.items():
        found.update({f"{group} {name}": value for name, value in chosen.items()})
    return found


def idea_of(compiled: Compiled, choices: Choices, expected: float | None, parents: tuple[int, ...] = ()) -> Idea:
    groups = {group.id: group.title for group in compiled.plan.groups}
    words, strategies = [], []
    for place, value in choices.items():
        group, _, name = place.partition(" ")
        group = group.partition(",")[0]
        what = f"{name} {'on' if value else 'off'}" if name in STRATEGIES else f"{name} = {value}"
        words.append(f"{what} in {group} ({groups.get(group, 'gone')})" if group else what)
        strategies.append(strategy_of(place))
    title = ", ".join(words)[:120] or "the compiler's own choice"
    text = (
        f"On top of fused groups in own kernels: {'; '.join(words)}." if words else "Fuse what can be fused and leave every number to the compiler."
    )
    return Idea(title, text[:2000], tuple(dict.fromkeys(strategies)), expected, parents, data=choices)


def _stream(compiled: Compiled, situation: Situation, offset: int) -> Iterator[tuple[Choices, float | None]]:
    if not compiled.own_groups:
        return
    yield {}, None
    best = situation.best
    if best is not None and best.edit.options is not None:
        likely = trusted(situation)
        for move in sorted(moves(compiled.plan, best.edit.options, best.report, best.profile, best.edit.source), key=lambda move: -likely(move)):
            yield choices_of(move.options), round(best.speedup.ratio * move.expected_speedup, 3)
    singles = list(_singles(compiled, situation))
    strategies = [(place, value) for place, value in singles if place.partition(" ")[2] in STRATEGIES]
    for place, value in strategies:
        yield {place: value}, None
    draw = random.Random(f"{situation.settings.seed}/ideas/{offset}")
    for _ in range(TRIES if singles else 0):
        picked = draw.sample(singles, min(len(singles), draw.randint(1, 4)))
        yield dict(picked), None


def _singles(compiled: Compiled, situation: Situation) -> Iterator[tuple[str, int]]:
    """Yields every single choice that differs from the compiler's own choice."""
    plan = compiled.plan
    graph = required(plan.graph, "a plan with own groups has a graph")
    network = Network(graph)
    own = sorted(compiled.own_groups, key=lambda group: -group.bytes)[:MOST_GROUPS]
    if plan.target.on_gpu and graph.recordable:
        yield " cuda-graph", 1
    for group in own:
        try:
            kernel = build(network, group.operators)
        except Refused:
            continue
        shape = plan.target.shape_of(kernel, compiled.figures, Options(), group.id)
        if shape.style == "rows":
            yield f"{group.id} parallel-split", 1
        if shape.style == "rows" and shape.cache:  # the kernel either keeps its rows in registers or reads them again
            yield f"{group.id} row-cache", 0
        if plan.target.could_stream(kernel, shape):
            yield f"{group.id} non-temporal-stores", 1
    for number in numbers(plan, situation.task_source, Options()):
        for value in number.values:
            if value != number.value:
                yield f"{','.join(number.groups)} {number.name.rpartition('.')[2]}", value
    for group in own if not plan.asked_for or len(own) > 1 else ():  # at least one kernel in the requested language has to remain
        yield f"{group.id} leave-to-library", 1
