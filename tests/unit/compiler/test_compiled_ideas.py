"""The built-in roles' ideas: distinct sets of choices that can be crossed, are turned into programs, and afterwards describe what the program
does."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from agents.roles import compiled_ideas
from agents.roles.coder import BuiltInCoder
from agents.roles.compiled import Compiled
from agents.roles.situation import Attempt, Idea, Plan, Situation
from agents.settings import Settings
from compiler import DeviceFigures, Options

EXAMPLES = Path(__file__).parents[3] / "examples"
FIGURES = {"cpu": DeviceFigures.cpu(2), "cuda": DeviceFigures.h200()}


@pytest.fixture(params=["softmax", "group_norm_silu"])
def situation_on(compiled, request):
    found: dict[str, Situation] = {}

    def make(device: str) -> Situation:
        if device not in found:
            task = compiled((EXAMPLES / f"{request.param}.py").read_text(), figures=FIGURES[device])
            found[device] = Situation(task.source, request.param, Settings(), plan=Plan({}, (), Compiled(task.plan, FIGURES[device])))
        return found[device]

    return make


def numbered(ideas, first=1):
    return [replace(idea, number=number) for number, idea in enumerate(ideas, start=first)]


def realise(situation, idea, parent=None):
    return asyncio.run(BuiltInCoder().realise(None, situation, idea, parent))


@pytest.mark.parametrize("device", FIGURES)
def test_ideas_differ_from_those_known_and_from_each_other(situation_on, device):
    situation = situation_on(device)
    first = numbered(compiled_ideas.ideas(situation, 10, []))
    more = compiled_ideas.ideas(situation, 10, first)
    assert len(first) == 10 and first[0].data == {} and first[0].title == "the compiler's own choice"
    keys = [frozenset(idea.data.items()) for idea in (*first, *more)]
    assert len(keys) == len(set(keys)) and len(more) > 0
    assert compiled_ideas.ideas(situation, 10, []) == compiled_ideas.ideas(situation, 10, []), "the seed decides"


@pytest.mark.parametrize("device", FIGURES)
def test_a_cross_takes_from_both_and_is_neither(situation_on, device):
    situation = situation_on(device)
    ideas = numbered(compiled_ideas.ideas(situation, 14, []))
    for first, second in zip(ideas[1:], ideas[2:], strict=False):
        child = compiled_ideas.cross(situation, first, second)
        assert child.parents == (first.number, second.number) and child.data not in (first.data, second.data)
        both = {**first.data, **second.data}
        assert sum(place not in both for place in child.data) <= 1
        assert all(child.data[place] in (first.data.get(place), second.data.get(place)) for place in child.data if place in both)
        assert child == compiled_ideas.cross(situation, first, second)


@pytest.mark.parametrize("device", FIGURES)
def test_an_idea_comes_true_and_is_aligned_with_what_came_of_it(situation_on, device):
    situation = situation_on(device)
    sources = set()
    for idea in numbered(compiled_ideas.ideas(situation, 12, [])):
        edit = realise(situation, idea)
        attempt = Attempt(1, None, edit)
        aligned = compiled_ideas.align(situation, idea, attempt)
        spread = {f"{group} {place.partition(' ')[2]}": v for place, v in idea.data.items() for group in place.partition(" ")[0].split(",")}
        assert aligned.data == spread and edit.idea is idea
        sources.add(edit.source)
    assert len(sources) >= 6


def test_what_a_repair_took_away_is_gone_from_the_strategy(situation_on):
    situation = situation_on("cuda")
    group = situation.plan.data.own_groups[0].id
    idea = Idea("row-cache off", "", ("row-cache",), number=4, data={f"{group} row-cache": 0})
    options = compiled_ideas.realised(idea, Options()).choose("row-cache", group, True).with_strategy("leave-to-library", group)
    aligned = compiled_ideas.align(situation, idea, Attempt(2, 1, replace(realise(situation, idea), options=options)))
    assert aligned.data == {f"{group} leave-to-library": 1} and "leave-to-library" in aligned.title


def test_an_idea_that_changes_nothing_is_no_program(situation_on):
    situation = situation_on("cuda")
    edit = realise(situation, Idea("as it is", "", number=1, data={}))
    situation.attempts = [Attempt(1, None, edit)]
    try:
        assert realise(situation, Idea("as it is, again", "", number=2, data={})) is None
    finally:
        situation.attempts = []


def test_ideas_in_words_name_strategies_that_the_compiler_knows(situation_on):
    situation = situation_on("cuda")
    worded = Idea("Replay", "Record the launches once.", ("cuda-graph", "swizzle"), number=1)
    assert "CUDAGraph" in realise(situation, worded).source


@pytest.mark.parametrize("device", FIGURES)
def test_numbers_of_a_program_are_tuned_on_top_of_it(situation_on, device):
    situation, coder = situation_on(device), BuiltInCoder()
    edit = realise(situation, Idea("as it is", "", number=1, data={}))
    attempt = Attempt(1, None, edit)
    knobs = coder.knobs(situation, attempt)
    assert len(knobs) >= 2 and all(knob.value in knob.values for knob in knobs)
    values = {knob.name: next(v for v in knob.values if v != knob.value) for knob in knobs[:2]}
    tuned = asyncio.run(coder.tune(None, situation, attempt, values))
    assert tuned.source != edit.source and tuned.strategy == "block-size" and all(name in tuned.title for name in values)
    now = {knob.name: knob.value for knob in coder.knobs(situation, Attempt(2, 1, tuned))}
    assert all(now.get(name, value) == value for name, value in values.items())
    assert asyncio.run(coder.tune(None, situation, attempt, {"nothing.block": 1})) is None
    assert coder.knobs(situation, Attempt(3, None, replace(edit, options=None))) == [], "a program of another coder's"
