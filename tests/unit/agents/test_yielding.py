"""A baseline that is faster than the winner is turned into a program and measured, but becomes the result only if it is still faster."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from agent_fakes import TASK, report

from agents.roles.compiled import Compiled
from agents.roles.situation import Attempt, Edit, Plan, Situation
from agents.settings import Settings
from agents.workflows.yielding import TAKEN, faster, standing, yielded
from compiler import CompilerPlan, DeviceFigures
from verifier.jobs import VerifyJob
from verifier.report import Interval, Report

pytestmark = pytest.mark.asyncio
FIGURES = DeviceFigures.h200()


def measured(source: str, status: str = "passed", **ratios: float) -> Report:
    """Returns a report with `ratios` over baselines, whose names have `_` in place of `-`."""
    made = report(VerifyJob(task_source=TASK, program_source=source, tier="full"), status)
    if made.timing is not None:
        one = made.timing.comparisons[0]
        made.timing.comparisons = [
            one.model_copy(update={"baseline": name.replace("_", "-"), "speedup": Interval(ratio=r, low=0.99 * r, high=1.01 * r)})
            for name, r in ratios.items()
        ]
    return made


class Told:
    """A span that records what is said, numbers candidates, and measures the given programs. The last report stands for all further programs."""

    def __init__(self, *following: Report | None):
        self.following, self.proposed, self.said = list(following), [], []

    async def say(self, _, *words):
        self.said += words

    async def propose(self, source, **facts):
        self.proposed.append((source, facts))
        return SimpleNamespace(candidate=2)

    async def verify(self, source, number, tier, *, last=False, rival=None):
        assert tier == "full" and last and rival is None
        return SimpleNamespace(result=SimpleNamespace(report=self.following.pop(0) if len(self.following) > 1 else self.following[0]))


def situation(**changes) -> Situation:
    plan = CompilerPlan(task="", mode="train", language="cuda", figures=FIGURES, groups=[], graph=None, floor_ms=0.1)
    found = Situation(TASK, "mine", Settings(**changes), plan=Plan({}, (), Compiled(plan, FIGURES)))
    found.attempts.append(Attempt(1, None, Edit("# kernels", "first", "", ())))
    return found


async def end(given: Situation, before: Report, *after: Report | None) -> tuple[Attempt, Report, Told]:
    span = Told(*after)
    attempt, found = await yielded(span, given, given.attempts[0], before)
    return attempt, found, span


BEHIND = {"eager": 2.0, "compile": 0.8, "cuda_graph": 1.5}


async def test_the_faster_baseline_takes_the_place():
    before, after = measured("# kernels", **BEHIND), measured("# compiled", eager=2.5, compile=1.0, cuda_graph=1.9)
    assert faster(before) == ["compile"] and standing(before) == 0.8
    attempt, found, span = await end(situation(), before, after)
    assert found is after and (attempt.number, attempt.parent, attempt.edit.strategy) == (2, 1, TAKEN)
    assert "torch.compile" in span.proposed[0][0] and span.proposed[0][1]["last"]


@pytest.mark.parametrize("after", [measured("# compiled", eager=1.9, compile=0.79), measured("# compiled", "crashed")], ids=["slower", "crashed"])
async def test_it_has_to_be_measured_faster(after):
    before = measured("# kernels", **BEHIND)
    attempt, found, span = await end(situation(), before, after)
    assert found is before and attempt.number == 1 and len(span.proposed) == 1


async def test_the_next_is_tried_where_the_fastest_has_no_program():
    before = measured("# kernels", eager=2.0, compile=0.8, cuda_graph=0.7, compile_reduce_overhead=0.9)
    assert faster(before) == ["cuda-graph", "compile", "compile-reduce-overhead"]
    attempt, found, span = await end(situation(), before, after := measured("# compiled", eager=2.5, compile=1.0, cuda_graph=0.9))
    assert found is after and len(span.proposed) == 1 and "mode=" not in span.proposed[0][0]  # nothing was captured, so there is no graph to record
    assert "in a CUDA graph is faster than candidate 1, but cannot be turned into a program: forward is not captured" in span.said[0]


async def test_the_next_is_tried_where_a_program_does_not_pass():
    before = measured("# kernels", eager=2.0, compile=0.8, compile_reduce_overhead=0.9)
    attempt, found, span = await end(situation(), before, measured("# compiled", "timed_out"))
    assert found is before and attempt.number == 1 and len(span.proposed) == 2


async def test_the_next_is_tried_where_a_program_is_no_faster():
    before = measured("# kernels", eager=2.0, compile=0.8, compile_reduce_overhead=0.9)
    slower, after = measured("# one", eager=1.9, compile=0.79), measured("# other", eager=2.3, compile=1.0, compile_reduce_overhead=1.01)
    attempt, found, span = await end(situation(), before, slower, after)
    assert found is after and attempt.number == 2 and len(span.proposed) == 2


async def test_the_message_names_why_a_program_does_not_take_the_place():
    hung = measured("# compiled", "timed_out")
    hung.message = "it did not finish within 180 s in a call in which torch.compile may compile"
    _, found, span = await end(situation(), before := measured("# kernels", **BEHIND), hung)
    assert found is before and span.said[-1] == f"Candidate 2, torch.compile: timed out: {hung.message}."


@pytest.mark.parametrize(
    ("given", "ratios"),
    [
        (situation(), {"eager": 2.0, "compile": 1.1}),
        (situation(), {"eager": 2.0, "compile": 0.995}),
        (situation(winner="own-kernels"), BEHIND),
        (situation(), {"eager": 1.2, "cuda_graph": 0.9}),
    ],
    ids=["ahead of all", "as fast", "own kernels are asked for", "a graph needs a capture"],
)
async def test_nothing_is_tried(given, ratios):
    attempt, found, span = await end(given, before := measured("# kernels", **ratios), None)
    assert found is before and attempt.number == 1 and not span.proposed
