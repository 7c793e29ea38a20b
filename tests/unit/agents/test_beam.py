"""Several branches at once: which program each is written from, when a branch migrates or ends, how the lead is won, and that the same calls are made
after an interruption."""

import asyncio
from collections import Counter
from dataclasses import replace

import pytest
from agent_fakes import TASK, FakeClient, report
from model_fakes import FakeModels, asking
from workflow_fakes import SearchRoles, engine, settings

from agents.call_graph import call_graph
from agents.journal import MemoryJournal
from agents.local import LocalVerifier
from agents.payloads import CandidateProposed, DecisionMade, WayChanged
from agents.roles.situation import Against, Attempt, Edit, Situation
from agents.run import Engine
from agents.settings import Budget, Settings
from agents.workflows.beam import LOST, STANDS_STILL, Beam, places_for
from agents.workflows.ways import REPAIRS, Turns, Way, ancestors_of, line_of, measured_beside
from tests.engines import engine_of
from verifier.jobs import VerifyJob
from verifier.report import Interval
from verifier.source import sha256


def roles(**changes) -> SearchRoles:
    return SearchRoles(**{"faults": (0, 1, 0, 4, 0, 9), "first_fault": 1, **changes})


def changes(journal: MemoryJournal) -> list[WayChanged]:
    return [event.body for event in journal.events if event.kind == WayChanged.kind]


def programs(journal: MemoryJournal) -> list[tuple]:
    said = [event.body for event in journal.events if event.kind == CandidateProposed.kind]
    return [(p.candidate, p.way, p.parent, p.sha, p.key) for p in said]


@pytest.mark.asyncio
async def test_the_call_graph():
    """Branch 1 writes the plan's program, and each of the others writes an idea; then each optimises or repairs its own program, with diagnoses in
    between."""
    run = engine("beam", roles(), candidates=40)
    summary = await run.execute()
    calls = call_graph(run.journal.events)
    assert {c.situation for c in calls if c.role == "planner"} == {"plan", "ideas"}
    first = [c for c in calls if c.span.startswith("round-1/way-")]
    assert [c.situation for c in first] == ["first", "realise", "realise", "realise"] and [c.span[-1] for c in first] == list("1234")
    assert {"first", "realise", "repair", "optimise"} <= {c.situation for c in calls}
    by_way = {p.candidate: p.way for p in (e.body for e in run.journal.events if e.kind == CandidateProposed.kind)}
    migrated = {(c.way, c.candidate) for c in changes(run.journal) if c.what in ("migrated", "begun") and c.of}
    for call in calls:
        if call.span.startswith("round") and call.role == "coder":
            number, parent = int(call.made[0].split()[1]), next((int(p.split()[1]) for p in call.parents if p.startswith("candidate")), None)
            assert parent is None or by_way[parent] == by_way[number] or (by_way[number], parent) in migrated, "a way changes its own programs"
    assert summary.outcome == "improved" and [c.number for c in summary.candidates] == list(range(1, len(summary.candidates) + 1))


@pytest.mark.slow
@pytest.mark.asyncio
async def test_the_same_calls_after_an_interruption_at_any_event():
    whole, client, first_roles = MemoryJournal(), FakeClient(), roles()
    first = await engine("beam", first_roles, whole, client, candidates=24).execute()
    for cut in range(1, len(whole.events), 17):
        journal, again = MemoryJournal(whole.run, whole.events[:cut], whole.artefacts), FakeClient()
        resumed_roles = roles()
        resumed = await engine("beam", resumed_roles, journal, again, candidates=24).execute()
        assert programs(journal) == programs(whole), cut
        assert changes(journal) == changes(whole), cut
        ended = Counter(e.payload["job"] for e in whole.events[:cut] if e.kind == "verification.finished")
        assert Counter(again.calls) + ended == Counter(client.calls), f"cut at {cut}: what had ended is not done again, and nothing else is"
        assert Counter(resumed_roles.seen) == Counter(first_roles.seen), cut
        assert (resumed.outcome, resumed.reason, resumed.best) == (first.outcome, first.reason, first.best), cut


class Asking(SearchRoles):
    """Roles for which each call is a request to a model."""

    async def ideas(self, span, situation, count, known):
        await span.ask("planner", "fake", asking("planner/ideas", f"{len(known)} known"))
        return await super().ideas(span, situation, count, known)

    async def write(self, span, situation, parent, advice):
        await span.ask("coder", "fake", asking("coder/write", f"from {parent.number if parent else 'nothing'}"))
        return await super().write(span, situation, parent, advice)

    async def realise(self, span, situation, idea, parent):
        await span.ask("coder", "fake", asking("coder/realise", f"idea {idea.number} on {parent.number if parent else 'the task'}"))
        return await super().realise(span, situation, idea, parent)

    async def advise(self, span, situation, attempt):
        shown = [a.number for a in situation.attempts]
        await span.ask("verifier", "fake", asking("verifier/diagnose", f"candidate {attempt.number} of {shown}"))
        return await super().advise(span, situation, attempt)


@pytest.mark.slow
@pytest.mark.asyncio
async def test_models_are_asked_the_same_after_an_interruption_whoever_answers_first():
    def begin(journal: MemoryJournal, models: FakeModels) -> Engine:
        async def late(key, on_delta):
            await asyncio.sleep(0.001 * (sum(map(ord, key + journal.run[:3])) % 4))

        models.before = late
        chosen = settings("beam", 14, planner="fake", coder="fake", judge="fake", budget={"calls": 26})
        asked = Asking(faults=(0, 1, 0, 4, 0, 9)).roles()
        return engine_of(journal, LocalVerifier(journal, FakeClient(), "cpu"), chosen, TASK, "softmax", roles=asked, models=models)

    whole, models = MemoryJournal(), FakeModels()
    first = await begin(whole, models).execute()
    assert {key.split("#")[0].split("/")[-1].split("-")[0] for key, _ in models.asked} >= {"ideas", "way", "diagnosis"}
    for cut in range(1, len(whole.events), 23):
        journal, again = MemoryJournal(whole.run, whole.events[:cut], whole.artefacts), FakeModels()
        resumed = await begin(journal, again).execute()
        answered = {e.payload["key"] for e in whole.events[:cut] if e.kind == "llm.completed"}
        assert sorted(again.asked) == sorted(call for call in models.asked if call[0] not in answered), cut
        assert programs(journal) == programs(whole) and changes(journal) == changes(whole), cut
        assert (resumed.outcome, resumed.best) == (first.outcome, first.best), cut


@pytest.mark.asyncio
async def test_whoever_answers_first_the_programs_have_the_same_numbers():
    class Slow(SearchRoles):
        """Delays the first branch's answers, so that they and its verdicts arrive last."""

        async def write(self, span, situation, parent, advice):
            await asyncio.sleep(0.004)
            return await super().write(span, situation, parent, advice)

    class Later(FakeClient):
        async def run(self, job, on_stage=None):
            await asyncio.sleep(0.003 * (len(getattr(job, "program_source", None) or "") % 3))
            return await super().run(job, on_stage)

    quick, slow = (
        engine("beam", roles(), candidates=20),
        engine("beam", Slow(faults=(0, 1, 0, 4, 0, 9), first_fault=1), client=Later(), candidates=20),
    )
    await quick.execute()
    await slow.execute()
    assert programs(slow.journal) == programs(quick.journal) and changes(slow.journal) == changes(quick.journal)


@pytest.mark.asyncio
async def test_a_lead_is_won_beside_the_leader_alone():
    """Two lines are compared by measuring both together, not by their ratios to eager."""
    jobs: list[VerifyJob] = []

    class Watching(FakeClient):
        async def run(self, job, on_stage=None):
            jobs.extend([job] if job.kind == "verify" else [])
            return await super().run(job, on_stage)

    run = engine("beam", roles(faults=(0,), first_fault=0), client=Watching(), candidates=24)
    summary = await run.execute()
    shas = {c.number: c.sha for c in summary.candidates}
    leads = [c for c in changes(run.journal) if c.what == "leads"]
    assert leads[0].beside is None and any(c.beside for c in leads)
    beside = [c for c in changes(run.journal) if c.beside]
    measured = {(sha256(j.program_source), sha256(j.rival_source)) for j in jobs if j.rival_source}
    assert all((shas[c.candidate], shas[c.beside]) in measured for c in beside)
    assert all(c.speedup.low > 1 for c in leads if c.speedup), "beyond the noise"
    numbers = [v.candidate for v in summary.verifications if "/beside-" in v.span]
    assert len(numbers) == len(beside) and set(numbers) == {None}, "it is no candidate's own verdict"


@pytest.mark.asyncio
async def test_what_seemed_faster_and_is_not_trails_and_is_not_measured_again():
    class Noisy(FakeClient):
        """Makes every program exactly as fast as the first program to take the lead."""

        first = ""

        async def run(self, job, on_stage=None):
            result = await super().run(job, on_stage)
            if job.kind == "verify" and job.rival_source == self.first:
                result.report = report(job, ratio=2.0, rival=2.0)
            return result

    run = engine("beam", roles(faults=(0,), first_fault=0), candidates=16)
    await run.execute()
    leader = next(c for c in changes(run.journal) if c.what == "leads")
    source = (await run.journal.get(next(c.program.sha for c in run.summary.candidates if c.number == leader.candidate))).decode()
    client = Noisy()
    client.first = source
    noisy = engine("beam", roles(faults=(0,), first_fault=0), client=client, candidates=16)
    await noisy.execute()
    trails = [c for c in changes(noisy.journal) if c.what == "trails" and c.beside == leader.candidate]
    assert trails and all(c.speedup.low <= 1 for c in trails)
    assert len({(c.candidate, c.beside) for c in trails}) == len(trails)


@pytest.mark.asyncio
async def test_ways_migrate_once_end_and_make_room():
    class Poor(SearchRoles):
        """Supplies an endless series of methods, none of which yields a gain."""

        async def write(self, span, situation, parent, advice):
            edit = await super().write(span, situation, parent, advice)
            known = len(self.seen)
            return replace(edit, source=f"# speed 1.1\n# number {known}\n", options=parent.edit.options if parent else edit.options)

        def by_rules(self, situation, attempt):
            return (
                replace(super().by_rules(situation, attempt), route="optimise", method="vectorise")
                if attempt.passed
                else super().by_rules(situation, attempt)
            )

    run = engine("beam", Poor(most_ideas=8), candidates=60)
    summary = await run.execute()
    told = changes(run.journal)
    moved = [c for c in told if c.what == "migrated"]
    assert moved and all(c.of not in (None, c.way) and c.candidate for c in moved)
    assert all("programs in a row" in c.reason or "has improved the program" in c.reason for c in moved)
    assert any(f"{STANDS_STILL} programs in a row" in c.reason for c in moved)
    ended = [c for c in told if c.what == "ended"]
    assert any(f"{LOST} programs in a row" in c.reason for c in ended)
    begun = [c.way for c in told if c.what == "begun"]
    assert begun == list(range(1, len(begun) + 1)) and len(begun) > 4, "the place of a way that ended goes to another"
    for last in {c.round for c in told}:
        going = {c.way for c in told if c.what == "begun" and c.round <= last} - {c.way for c in told if c.what == "ended" and c.round <= last}
        assert len(going) <= 4
    assert summary.state == "finished" and not summary.errors


@pytest.mark.asyncio
async def test_a_way_whose_profile_leaves_nothing_ends_before_a_judge_is_asked():
    run = engine("beam", roles(faults=(0,), first_fault=0), candidates=40)
    await run.execute()
    ended = {(c.way, c.round): c.reason for c in changes(run.journal) if c.what == "ended"}
    pruned = [key for key, reason in ended.items() if reason.startswith("Its profile leaves nothing to gain")]
    assert pruned
    judged = {e.span for e in run.journal.events if e.kind == DecisionMade.kind}
    assert not {f"round-{round_}/diagnosis-{way}" for way, round_ in pruned} & judged


@pytest.mark.asyncio
async def test_as_many_ways_at_once_as_there_are_workers_and_never_beyond_the_budget():
    for workers in (1, 3, 5):
        run = engine("beam", roles(), candidates=40, workers=workers)
        await run.execute()
        ways = Counter(e.span.split("/")[0] for e in run.journal.events if e.kind == "span.opened" and "/way-" in e.span)
        assert max(ways.values()) == workers
    for candidates in (1, 2, 3, 7, 12):
        summary = await engine("beam", roles(faults=(0, 1)), candidates=candidates).execute()
        assert len(summary.candidates) == candidates and [c.number for c in summary.candidates] == list(range(1, candidates + 1))


@pytest.mark.parametrize(
    ("budget", "workers", "places"),
    [
        ({"candidates": 1}, 4, 1),
        ({"candidates": 8}, 4, 4),
        ({"candidates": 8}, 16, 4),
        ({"candidates": None, "calls": 12}, 4, 3),
        ({"calls": 1}, 4, 1),
    ],
)
def test_few_ways_where_the_budget_feeds_few(budget, workers, places):
    assert places_for(Budget(**budget), workers) == places


@pytest.mark.asyncio
async def test_turns_are_by_number():
    ways = [Way(number, Situation(TASK, "t", Settings())) for number in (2, 5, 7)]
    turns, seen = Turns(ways), []

    async def one(way: Way, seconds: float) -> None:
        await asyncio.sleep(seconds)
        try:
            if way.number == 5:
                raise KeyError("its reply is lost")
            await turns.of(way)
            seen.append(way.number)
        finally:
            turns.end(way)

    done = await asyncio.gather(*(one(way, s) for way, s in zip(ways, (0.01, 0.0, 0.0), strict=True)), return_exceptions=True)
    assert seen == [2, 7] and isinstance(done[1], KeyError)


def attempt(number: int, parent: Attempt | None = None, ratio: float = 1.5, rival: float | None = None, status: str = "passed") -> Attempt:
    source = f"# speed {ratio}\n# {number}\n"
    job = VerifyJob(task_source=TASK, program_source=source, tier="quick", rival_source="x" if rival else None)
    found = report(job, status, ratio, rival=rival)
    return Attempt(number, parent.number if parent else None, Edit(source, "", "", ()), report=found, base=parent)


def test_a_program_beside_one_of_another_line_stands_at_that_ones_level():
    one, other = attempt(1, ratio=2.0), attempt(2, ratio=2.4)
    child = attempt(3, other, ratio=9.9, rival=9.0)  # 1.1 times as fast as its parent, however eager's time changed in the meantime
    assert child.level == pytest.approx(2.4 * 1.1)
    other.against = Against(one, Interval(ratio=0.9, low=0.88, high=0.92))
    assert other.level == pytest.approx(1.8) and child.level == pytest.approx(1.98) and child.score == pytest.approx(one.score * 0.99)
    assert other.gain is None and child.gain.ratio == pytest.approx(1.1), "what its own change brought is as it was"
    assert measured_beside(child, one) and measured_beside(child, other) and not measured_beside(one, other)


def test_a_way_repairs_gains_loses_and_goes_on_from_anothers_line():
    way = Way(1, Situation(TASK, "t", Settings()))
    for number in range(1, REPAIRS + 1):
        way.take(attempt(number, status="wrong_result"))
        assert way.failed is way.view.attempts[-1] and way.lost == 0
    way.take(attempt(4, status="wrong_result"))
    assert (way.failed, way.lost, way.repairs) == (None, 1, 0)
    first = attempt(5)
    way.take(first)
    assert (way.best, way.lost) == (first, 0)
    way.take(attempt(6, first, ratio=3.0, rival=2.99))
    assert way.lost == 1, "less than 2 % beside its parent"
    way.take(attempt(7, first, status="inconclusive"))
    assert (way.failed, way.lost) == (None, 2)
    whole = Situation(TASK, "t", Settings(), attempts=[attempt(8)])
    other = attempt(9, whole.attempts[0], ratio=4.0, rival=2.0)
    whole.attempts += [other, attempt(10, whole.attempts[0], ratio=1.0, rival=1.0), attempt(11, other, status="wrong_result")]
    assert [a.number for a in line_of(whole, other)] == [8, 9, 11]
    assert ancestors_of(whole, whole.attempts[-1]) == {9, 8}
    stood = way.best
    way.learn(other)
    assert other not in way.view.attempts and way.best is stood, "a better program of another way is adopted by the rule alone"
    way.learn(whole.attempts[-1])
    way.learn(whole.attempts[-1])
    assert way.view.attempts.count(whole.attempts[-1]) == 1 and way.best is stood
    way.adopt(line_of(whole, other), None)
    assert way.best is other and way.moved and way.view.attempts is not whole.attempts


def test_a_way_that_stands_where_another_went_on_follows_it():
    """Two branches at the same program would try the same thing next; a branch on a different line may go longer without a gain."""
    start, apart = attempt(1), attempt(3)
    ahead = attempt(2, start, ratio=3.0, rival=1.5)
    whole = Situation(TASK, "t", Settings(), attempts=[start, ahead, apart])
    search = Beam(None, whole, SearchRoles().roles(), leader=ahead, leads=1)

    def way(number: int, best: Attempt, **stands) -> Way:
        return Way(number, replace(whole, attempts=[best]), **stands)

    assert "has improved the program that this branch began with" in search._stands_still(way(2, start, lost=1))
    assert "has improved" in search._stands_still(way(2, start, lost=1, moved=True))
    assert search._stands_still(way(2, apart, lost=1)) == "" and "2 programs in a row" in search._stands_still(way(2, apart, lost=2))
    assert search._stands_still(way(2, apart, lost=3, moved=True)) == "", "once, until it has gained"
    for stays in (way(2, start), way(2, start, lost=1, failed=apart), way(1, start, lost=3), way(2, ahead, lost=3)):
        assert search._stands_still(stays) == ""
