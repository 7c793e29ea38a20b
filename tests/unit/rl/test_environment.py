"""Episodes, the pool's limits, and that no caller receives another's verdict."""

from __future__ import annotations

import asyncio
import random

import pytest

from agents.rl.environment import Action, BadAction, Conditions, Environment, Episode, Problem, problems_in, problems_of
from agents.rl.pool import Full, Pool
from agents.rl.prompts import program_at, program_in, prompt_of, shown_in
from tests.unit.rl.rl_reports import failed, passed
from tests.unit.rl.rl_verifier import TASK, FakeVerifier, program
from verifier.jobs import VerifyJob
from verifier.report import Report

OTHER = TASK.replace("softmax", "tanh")


def environment(verifiers: int = 1, waiting: int = 8, **conditions) -> Environment:
    pool = Pool([FakeVerifier() for _ in range(verifiers)], waiting)
    return Environment(problems_in({"a": TASK, "b": OTHER}), pool, Conditions(**conditions))


def taken(made: Environment, *programs: str, problem: str = "a"):
    async def act():
        episode = Episode(made, made.choose(problem=problem))
        return [episode.begin(), *[await episode.step(Action(program=one)) for one in programs]]

    return asyncio.run(act())


def test_one_turn_is_one_skill():
    begun, seen = taken(environment(), program(low=1.5))
    assert TASK.strip() in begun.prompt and begun.reward is None and not begun.done
    assert seen.done and seen.reward > 1 and seen.status == "passed" and seen.prompt == ""
    assert set(seen.rubric) == {"anti_hacking", "bottleneck_coverage", "cuda_perf_quality", "multi_component_focus"}
    assert seen.components["low"] == 1.5 and seen.components["skill"] == "write"


def test_several_turns_are_the_loop():
    made = environment(turns=3)
    _, wrong, right, better = taken(made, program(status="wrong_result", message="off by one"), program(low=1.1), program(low=2.0))
    assert wrong.reward == 0 and not wrong.done and "off by one" in wrong.prompt and "status wrong_result" in wrong.prompt
    assert right.components["skill"] == "improve" and right.rubric["bottleneck_effectiveness"] == 5
    assert better.done and better.reward > right.reward and better.turn == 3
    with pytest.raises(BadAction, match="over"):
        asyncio.run(Episode(made, made.choose(problem="a"), done=True).step(Action(program="x")))


@pytest.mark.parametrize("status", ["died", "timed_out", "infrastructure_error", "inconclusive"])
def test_a_fault_of_the_host_ends_the_episode_without_a_reward(status):
    seen = taken(environment(turns=3), program(status=status))[-1]
    assert seen.reward is None and seen.done and seen.no_sample


def test_a_verdict_of_another_program_is_never_taken():
    seen = taken(environment(), program(of="another", low=9))[-1]
    assert seen.reward is None and seen.no_sample == "other-program"


@pytest.mark.parametrize("text", ["", "x = 1", "class ModelNew(", "\0", "(" * 4000, "import os\nclass ModelNew:\n    a = os.fork()"])
def test_what_is_refused_by_its_text_costs_no_verifier(text):
    made = environment()
    seen = taken(made, text)[-1]
    assert seen.reward == 0 and seen.status == "rejected" and made.pool.clients[0].jobs == []


def test_a_prompt_says_what_it_shows():
    assert shown_in(prompt_of("a = 1\n")) == ("a = 1", "")
    assert shown_in(prompt_of("a = 1", "b = 2\n\n\nc = 3\n", "it is off\n\nProgram:\n```python\nx\n```")) == ("a = 1", "b = 2\n\n\nc = 3")
    assert shown_in("write a:") == ("", "")


def test_a_reply_holds_its_program_in_the_last_fence():
    reply = "```python\na\n```\n```python\nb\n```\nDone."
    assert reply[slice(*program_at(reply))] == program_in(reply) == "b\n"
    assert program_in("Try\n```python\na\n```\nbetter:\n```python\nb\nc\n```\n") == "b\nc\n"
    assert program_in("class ModelNew: pass") == "class ModelNew: pass"
    for action in (Action(), Action(program="a", reply="b"), Action(program="x" * (1 << 18 | 1))):
        with pytest.raises(BadAction):
            action.source()


def test_no_cross_talk_between_many_episodes():
    """Each caller receives the reward for its own program, whichever finishes first."""

    async def act():
        made = environment(verifiers=4, waiting=100)
        rng = random.Random(0)

        async def one(number: int) -> None:
            low = 0.5 + number / 50
            episode = Episode(made, made.choose(problem="ab"[number % 2]))
            seen = await episode.step(Action(program=program(low=low, seconds=rng.random() / 100)))
            assert seen.components["low"] == low and seen.problem == "ab"[number % 2] and seen.episode_id == episode.id

        await asyncio.gather(*(one(number) for number in range(80)))
        assert made.pool.done == 80 and made.pool.at_work == made.pool.waiting == 0
        assert all(client.most_at_work == 1 for client in made.pool.clients)

    asyncio.run(act())


def test_the_line_has_an_end_and_a_full_pool_costs_no_turn():
    async def act():
        made = environment(verifiers=1, waiting=1)
        held = [asyncio.create_task(Episode(made, made.choose(problem="a")).step(Action(program=program(wait=1)))) for _ in range(2)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        late = Episode(made, made.choose(problem="a"))
        with pytest.raises(Full, match="try again"):
            await late.step(Action(program=program(low=1.0)))
        assert late.turn == 0 and made.pool.refused == 1
        made.pool.clients[0].go.set()
        await asyncio.gather(*held)
        assert (await late.step(Action(program=program(low=1.0)))).reward is not None

    asyncio.run(act())


def test_a_cancelled_step_frees_its_verifier_and_its_episode():
    async def act():
        made = environment(verifiers=1, waiting=0)
        episode = Episode(made, made.choose(problem="a"))
        step = asyncio.create_task(episode.step(Action(program=program(wait=1))))
        await asyncio.sleep(0.01)
        with pytest.raises(BadAction, match="not finished yet"):
            await episode.step(Action(program=program(low=1.0)))
        step.cancel()
        with pytest.raises(asyncio.CancelledError):
            await step
        assert made.pool.clients[0].cancelled == 1 and made.pool.at_work == 0
        assert (await episode.step(Action(program=program(low=1.0)))).turn == 1

    asyncio.run(act())


def test_the_seed_chooses_the_problem():
    made = environment()
    assert [made.choose(seed).id for seed in range(9)] == [made.choose(seed).id for seed in range(9)]
    assert {made.choose(seed).id for seed in range(9)} == {"a", "b"}
    with pytest.raises(BadAction, match="no problem"):
        made.choose(problem="c")


def test_a_repair_begins_with_its_report():
    wrong = Report.model_validate(failed("wrong_result"))
    problem = Problem(id="r", task=TASK, skill="improve", before=program(), report=wrong, feedback="it is off")
    made = Environment([problem], Pool([FakeVerifier()], 0))
    begun, seen = taken(made, program(low=1.2), problem="r")
    assert "it is off" in begun.prompt and seen.components["skill"] == "improve" and seen.rubric["bottleneck_effectiveness"] == 5


def test_problems_of_rows_keep_what_the_reward_needs():
    from tests.unit.rl.test_export import CLEAN, rows_of, trace

    found = problems_of(list(rows_of(trace("attention"), CLEAN)))
    assert [problem.skill for problem in found] == ["write", "improve"]
    assert found[1].report is not None and found[1].diagnosis is not None and found[1].report.status == "passed"


def test_the_diagnosis_of_what_passed_is_part_of_the_next_prompt(monkeypatch):
    made = environment(turns=2, profile=True)

    async def diagnosis(task, source, report):
        from agents.diagnosis import Diagnosis

        return Diagnosis(bottleneck="memory", text="Memory sets the pace.")

    monkeypatch.setattr(made, "diagnosis", diagnosis)
    assert "Memory sets the pace." in taken(made, program(low=1.1))[-1].prompt
    assert passed()["status"] == "passed"


def test_programs_of_one_task_go_to_the_verifier_that_knows_it():
    clients = [FakeVerifier(), FakeVerifier()]
    seen: list[tuple[int, str]] = []

    def noting(number, run):
        async def noted(job, on_stage=None):
            seen.append((number, job.task_source))
            await asyncio.sleep(0.001)
            return await run(job)

        return noted

    for number, client in enumerate(clients):
        client.run = noting(number, client.run)
    pool = Pool(clients, 64)
    jobs = [VerifyJob(task_source=task, program_source=program(number=at)) for at in range(8) for task in (TASK, OTHER)]

    async def act():
        await asyncio.gather(*[pool.run(job) for job in jobs])

    asyncio.run(act())
    assert len(seen) == 16 and len({number for number, task in seen if task == TASK}) == 1 and {number for number, _ in seen} == {0, 1}
    assert pool.done == 16 and pool.at_work == pool.waiting == 0


def test_a_cancelled_caller_never_keeps_a_verifier():
    async def act():
        client = FakeVerifier()
        pool = Pool([client], 8)
        first = asyncio.create_task(pool.run(VerifyJob(task_source=TASK, program_source=program(wait="yes"))))
        await asyncio.sleep(0)
        waiting = [asyncio.create_task(pool.run(VerifyJob(task_source=TASK, program_source=program(number=at)))) for at in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        client.go.set()
        await first
        waiting[1].cancel()  # it has been given the verifier, but has not begun
        assert (await waiting[2]).report is not None
        assert pool.at_work == pool.waiting == 0

    asyncio.run(act())
