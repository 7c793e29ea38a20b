"""Notes to the built-in compiler: the three forms that it accepts, what it refuses, and that a resumed run follows them in the same way."""

from __future__ import annotations

import pytest
from agent_fakes import TASK, FakeClient, report, settings
from workflow_fakes import SearchRoles, engine

from agents import orders
from agents.events import NewEvent
from agents.journal import MemoryJournal
from agents.local import LocalVerifier
from agents.orders import NotAnOrder, Order, Orders
from agents.roles import rules_verifier, verifier
from agents.roles.obeying import heed
from agents.roles.situation import Attempt, Edit, Plan, Situation
from agents.run import Engine
from agents.settings import Settings
from compiler import Move, Options
from tests.engines import engine_of
from tests.slowness import quick
from verifier.jobs import VerifyJob

MODELS = {"planner": "big", "coder": "big", "judge": "big"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("skip cuda-graph", [Order("skip", ("cuda-graph",))]),
        ("Skip strategy `row-cache`.", [Order("skip", ("row-cache",))]),
        ("only try block-size, row-cache and cuda-graph", [Order("only", ("block-size", "row-cache", "cuda-graph"))]),
        ("- only block-size\n\n- allow all", [Order("only", ("block-size",)), Order("allow", ())]),
        ("allow row-cache", [Order("allow", ("row-cache",))]),
    ],
)
def test_the_forms_of_an_order(text, found):
    assert orders.read(text) == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("the last dimension is always 4096", "does not read prose"),
        ("skip", "does not read prose"),
        ("skip row-cahe", "did you mean row-cache"),
        ("only try harder", "no strategy 'harder'"),
        ("skip row-cache\nand hurry", "does not read prose"),
    ],
)
def test_what_is_no_order_is_refused_with_the_forms(text, said):
    with pytest.raises(NotAnOrder, match=said) as refused:
        orders.read(text)
    assert "skip STRATEGY" in str(refused.value)


def test_who_can_read_a_note():
    orders.check(Settings(**MODELS), "all", "mind the tails")
    orders.check(Settings(**MODELS | {"judge": "built-in"}), "all", "mind the tails")  # the Coder reads it
    for chosen, to in (
        (Settings(), "all"),
        (Settings(**MODELS | {"judge": "built-in"}), "verifier"),
        (Settings(workflow="descend", **MODELS), "coder"),  # this role has no model, whatever the settings say
        (Settings(workflow="verify", **MODELS), "all"),
    ):
        with pytest.raises(NotAnOrder):
            orders.check(chosen, to, "mind the tails")
    assert orders.found("mind the tails\nskip row-cache") == [Order("skip", ("row-cache",))]


def test_later_orders_take_back_earlier_ones():
    held = Orders()

    def tell(text: str) -> None:
        for order in orders.read(text):
            held.obey(order)

    tell("skip row-cache, cuda-graph")
    assert held.refuses("row-cache") == "a note says to skip row-cache" and held.refuses("block-size") is None and held.refuses("") is None
    tell("allow cuda-graph")
    assert held.refuses("cuda-graph") is None and held.refuses("row-cache")
    tell("only row-cache")
    assert held.refuses("row-cache") is None and held.refuses("block-size") == "a note says to try only row-cache"
    tell("allow block-size")
    assert held.refuses("block-size") is None and held.refuses("cuda-graph")
    tell("allow all")
    assert held == Orders()


async def noted(journal: MemoryJournal, text: str, to: str = "all") -> None:
    await journal.append([NewEvent(kind="note.added", agent="person", payload={"to": to, "text": text, "by": "ada"})])


def at_work(journal: MemoryJournal, chosen: Settings) -> tuple[Engine, Situation]:
    run = engine_of(journal, LocalVerifier(journal, FakeClient(), "cpu"), chosen, TASK, "mine")
    return run, Situation(TASK, "mine", chosen)


@pytest.mark.asyncio
async def test_an_order_is_read_once_said_and_replayed():
    journal = MemoryJournal()
    for look in range(2):  # the second run, continuing the journal of the first
        run, situation = at_work(journal, settings())
        if look == 0:
            await noted(journal, "skip row-cache\nplease", to="planner")
        else:
            run = engine_of(MemoryJournal(journal.run, journal.events, journal.artefacts), run.verifier, settings(), TASK, "mine")
            await run.refresh()
            run.replay.__init__(journal.events)
        span = run.span("plan", "Plan")
        await heed(span, situation, "planner")
        assert situation.orders.skipped == {"row-cache"}
        await heed(span, situation, "planner")
    said = [e.payload["text"] for e in journal.events if e.kind == "message.completed"]
    assert len(said) == 1 and said[0].startswith("As ada asked: row-cache is no longer tried from here on.")
    assert [e.payload["key"] for e in journal.events if e.kind == "effect.completed"] == ["plan/orders#1"]


@pytest.mark.asyncio
async def test_notes_for_models_are_left_to_them():
    journal = MemoryJournal()
    await noted(journal, "skip row-cache")
    run, situation = at_work(journal, Settings(**MODELS))
    await heed(run.span("plan", "Plan"), situation, "planner")
    assert situation.orders == Orders() and len(journal.events) == 1


def passed(number: int = 1) -> Attempt:
    attempt = Attempt(number, None, Edit("# speed 1.5\n", "", "", (), options=Options()))
    attempt.report = report(VerifyJob(task_source=TASK, program_source=attempt.edit.source), ratio=1.5)
    return attempt


@pytest.mark.asyncio
async def test_the_built_in_verifier_leaves_out_what_a_note_says(monkeypatch):
    from agents.roles.compiled import Compiled
    from compiler import CompilerPlan, DeviceFigures

    offered = [
        Move(strategy=name, group="g1", options=Options(knobs={"x": n}), expectation="faster", expected_speedup=1.2, why="because")
        for n, name in enumerate(("block-size", "row-cache"))
    ]
    monkeypatch.setattr(verifier, "moves", lambda plan, options, report, profile, source: offered)
    empty = CompilerPlan(task="t", mode="train", figures=DeviceFigures.cpu(), groups=[], graph=None, floor_ms=0.0)
    journal = MemoryJournal()
    run, situation = at_work(journal, settings())
    situation.plan, situation.attempts = Plan({}, (), Compiled(empty, empty.figures)), [passed()]
    span, judge = run.span("a", "A"), verifier.BuiltInVerifier()
    assert (await judge.advise(span, situation, situation.attempts[0])).method == "block-size"
    await noted(journal, "skip block-size")
    assert (await judge.advise(span, situation, situation.attempts[0])).method == "row-cache"
    await noted(journal, "only try cuda-graph", to="verifier")
    advice = await judge.advise(span, situation, situation.attempts[0])
    assert advice.route == "stop" and "a note says to try only cuda-graph" in advice.reason
    by_rules = rules_verifier.open_methods(situation, rules_verifier.diagnosed(situation, situation.attempts[0]))
    assert by_rules == []


@pytest.mark.slow
@pytest.mark.asyncio
@pytest.mark.parametrize("workflow", quick(["stitch", "descend", "branch", "beam", "pilot", "worldmodel", "random"], 2))
async def test_a_run_with_orders_resumes_to_the_same_end_wherever_it_is_cut(workflow):
    class Obeying(SearchRoles):
        async def ideas(self, span, situation, count, known):
            await heed(span, situation, "planner")
            return [idea for idea in await super().ideas(span, situation, count, known) if not set(idea.strategies) & situation.orders.skipped]

        async def edit_tree(self, span, situation, view):
            await heed(span, situation, "planner")
            return await super().edit_tree(span, situation, view)

        async def advise(self, span, situation, attempt):
            await heed(span, situation, "verifier")
            return await super().advise(span, situation, attempt)

    def begin(journal: MemoryJournal) -> Engine:
        return engine(workflow, Obeying(most_ideas=12), journal=journal, candidates=24)

    whole = MemoryJournal()
    await noted_after(whole, begin(whole))
    first = next((n for n, e in enumerate(whole.events) if e.kind == "note.added"), None)
    assert first is not None
    assert any(e.kind == "effect.completed" and e.payload["name"] == "notes" for e in whole.events)
    programs = [e.payload["title"] for e in whole.events if e.kind == "candidate.proposed"]
    for cut in range(first + 1, len(whole.events), max(1, len(whole.events) // 12)):
        again = MemoryJournal(whole.run, whole.events[:cut], whole.artefacts)
        await begin(again).execute()
        assert [e.payload["title"] for e in again.events if e.kind == "candidate.proposed"] == programs, cut


async def noted_after(journal: MemoryJournal, run: Engine) -> None:
    """Performs a complete run with an order that arrives after its first program has been measured."""
    real = journal.append

    async def append(events):
        written = await real(events)
        if any(e.kind == "verification.finished" for e in events) and not any(e.kind == "note.added" for e in journal.events):
            await real([NewEvent(kind="note.added", agent="person", payload={"to": "all", "text": "skip row-cache", "by": "ada"})])
        return written

    journal.append = append
    await run.execute()
