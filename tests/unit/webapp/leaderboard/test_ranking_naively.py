"""The fast ranking compared with a naive one: every figure on every board is recomputed run by run in plain Python, over random runs of several
teams, while results are judged, withdrawn, published and hidden, and suites and filters change."""

from __future__ import annotations

import math
import random
import statistics
from collections import defaultdict
from datetime import timedelta

import pytest
from django.db import close_old_connections, connection, transaction
from django.utils import timezone

from tests.unit.webapp.ranked import make_ranked, make_suite, make_task
from webapp.accounts.models import Membership, User
from webapp.leaderboard.columns import COSTS, Column
from webapp.leaderboard.filters import SOLVING, Filters
from webapp.leaderboard.models import EVERYONE, PRIVATE, TEAM, Entry, Result, Setup, Subject, Suite, SuiteTask
from webapp.leaderboard.ranking import board
from webapp.leaderboard.visibility import set_visibility
from webapp.review import verdicts
from webapp.runs.models import Candidate, Run
from webapp.tasks.models import Task

TASKS = [f"{n}_task" for n in range(1, 10)]
OUT = ("questioned", "hack", "retracted")
RUNS, ROUNDS = 160, 4
SELECTIONS = [
    Filters(), Filters(suite="kernelbench-level3"), Filters(program_class="custom"), Filters(program_class="any", against="best", p=1.4),
    Filters(whose="ours"), Filters(whose="published"), Filters(precision="bf16"), Filters(llm="gpt-x", sort="dollars"), Filters(workflow="stitch"),
]  # fmt: skip


def play(people, draws: random.Random) -> list[Run]:
    """Creates random finished runs of two teams, on the same tasks by the same entries, written as the projection writes them."""
    make_suite(people.alice, TASKS[:5])
    for name in TASKS[5:]:
        make_task(people.alice, name)
    entries = [
        Entry.objects.create(key=f"{workflow}/{model}", workflow=workflow, planner=model, coder=model, judge=model)
        for workflow in ("stitch", "forge") for model in ("built-in", "gpt-x")
    ]  # fmt: skip
    setups = [Setup.objects.create(device_kind="cuda", device_model="h200", precision=p, mode="train") for p in ("fp32-strict", "bf16")]
    tasks = {name: Task.objects.get(team=people.alice.personal_team, name=name) for name in TASKS}
    subjects = {name: Subject.objects.create(sha=task.sha) for name, task in tasks.items()}
    template = make_ranked(people.alice, "template", 2.0)
    runs = []
    for n in range(RUNS):
        user = draws.choice([people.alice, people.alice, people.charlie])
        team, name = user.personal_team, draws.choice(TASKS)
        task = Task.objects.get_or_create(team=team, sha=tasks[name].sha, defaults={"name": name, "source": tasks[name].source})[0]
        run = Run.objects.create(team=team, task=task, title=f"run {n}", state="finished", outcome="improved", best_candidate=1, created_by=user)
        Candidate.objects.create(run=run, number=1, title="", sha="", program=template.candidates.get().program, created_at=timezone.now())
        confirmed, eager = draws.random() < 0.8, math.exp(draws.gauss(0.4, 0.6))
        best = eager * draws.uniform(0.6, 1.0)
        figures = {
            "eager": eager, "eager_low": eager * 0.95, "eager_high": eager * 1.06, "best": best, "best_low": best * 0.97, "best_high": best * 1.02,
            "compile": eager * 0.8, "autotune": draws.choice([None, best]), "graph": eager * 0.9,
            "program_class": draws.choice(["custom", "custom", "mixed", "orchestration"]),
        }  # fmt: skip
        Result.objects.create(
            run=run, team=team, maker=user, task=task, subject=subjects[name], entry=draws.choice(entries), setup=draws.choice(setups), candidate=1,
            visibility=TEAM, confirmed=confirmed, flagged=name == TASKS[-1] and draws.random() < 0.5, dollars=draws.random(), tokens=n * 100,
            seconds=draws.choice([None, 60.0 + n]), faster_after=draws.choice([None, 5.0 + n]),
            finished_at=timezone.now() + timedelta(seconds=n), **(figures if confirmed else {}),
        )  # fmt: skip
        runs.append(run)
    template.delete()
    return runs


def change(draws: random.Random, people, runs: list[Run]) -> None:
    """Does what people do to results: judge, withdraw, publish and hide them, and delete a run."""
    for _ in range(25):
        run = draws.choice(runs)
        by = people.alice if run.team == people.alice.personal_team else people.charlie
        if draws.random() < 0.5:
            stands = Candidate.objects.get(run=run).verdict
            verdicts.give(by, run, 1, "withdrawn" if stands and draws.random() < 0.6 else draws.choice([*OUT, "accepted"]), "told by the test")
        else:
            set_visibility(run, draws.choice([PRIVATE, TEAM, EVERYONE]))
    gone = runs.pop(draws.randrange(len(runs)))
    gone.candidates.all().delete()
    gone.delete()


# --- The naive ranking


def counting(viewer: User, filters: Filters) -> tuple[dict, dict, Setup]:
    """Returns two maps: (entry, task's hash) -> (the result that counts, the number of runs), and (entry, task's hash) -> a result that a verdict
    removed."""
    teams = set(Membership.objects.filter(user=viewer).values_list("team", flat=True))
    groups, out = defaultdict(list), {}
    everything = list(Result.objects.select_related("entry", "setup", "subject", "run").order_by("pk"))
    for result in everything:
        ours, public = result.team_id in teams, result.visibility == EVERYONE
        seen = (public if filters.whose == "published" or not ours else result.visibility != PRIVATE) and (ours or filters.whose != "ours")
        if seen and result.verdict not in OUT:
            groups[result.setup, result.entry, result.subject.sha, result.team_id].append(result)
    sizes = defaultdict(int)
    for setup, *_ in groups:
        sizes[setup] += 1
    setup = max((s for s in sizes if filters.precision in ("", s.precision)), key=lambda s: (sizes[s], -s.pk))

    def score(result: Result):
        return (result.eager if result.confirmed else 0.0, result.pk)

    medians = defaultdict(list)
    for (of, entry, sha, _), found in groups.items():
        if of == setup:
            found.sort(key=score)
            medians[entry, sha].append((found[(len(found) - 1) // 2], len(found)))
    counts = {}
    for key, found in medians.items():
        found.sort(key=lambda pair: score(pair[0]))
        counts[key] = (found[(len(found) - 1) // 2][0], sum(runs for _, runs in found))
    for result in everything:
        ours, public = result.team_id in teams, result.visibility == EVERYONE
        own = ours and (result.visibility == TEAM or result.maker_id == viewer.pk)
        seen = ours and (public or own) if filters.whose == "ours" else public or (own and filters.whose != "published")
        if seen and result.verdict in OUT and result.setup == setup:
            out[result.entry, result.subject.sha] = result
    return counts, out, setup


def naive(viewer: User, filters: Filters, suite: list[str] | None) -> dict[str, dict]:
    """Maps each entry's number to its figures."""
    counts, out, _ = counting(viewer, filters)

    def wanted(entry: Entry) -> bool:
        return filters.workflow in ("", entry.workflow) and filters.llm in ("", entry.coder)

    counts = {key: found for key, found in counts.items() if wanted(key[0]) and (suite is None or key[1] in suite)}
    out = {key: found for key, found in out.items() if wanted(key[0]) and (suite is None or key[1] in suite)}
    flagged = {sha for (_, sha), (result, _) in counts.items() if result.flagged}
    tasks = [sha for sha in (suite or {sha for _, sha in [*counts, *out]}) if sha not in flagged]
    found = {}
    for entry in {entry for entry, _ in [*counts, *out]}:
        mine = [counts[entry, sha] for sha in tasks if (entry, sha) in counts]
        left = sum((entry, sha) in out for sha in tasks)
        if not mine and not left:
            continue
        solved = [result for result, _ in mine if result.confirmed and result.program_class in SOLVING[filters.program_class]]
        against = filters.against or "eager"
        found[str(entry.pk)] = {
            "passed": len(solved), "tried": len(mine), "runs": sum(runs for _, runs in mine), "left_out": left,
            "other_class": sum(result.confirmed for result, _ in mine) - len(solved),
            "eager": math.exp(sum(math.log(result.eager) for result in solved) / len(tasks)),
            "best": math.exp(sum(math.log(result.best) for result in solved) / len(tasks)),
            "fast": sum(getattr(result, against) > filters.p for result in solved) / len(tasks),
            "sure": sum(getattr(result, f"{against}_low") > filters.p for result in solved) / len(tasks),
            **{column.key: cost(column, [result for result, _ in mine]) for column in COSTS},
            "ratios": sorted(getattr(result, against) for result in solved),
        }  # fmt: skip
    return found


def cost(column: Column, results: list[Result]) -> float | None:
    known = [getattr(result, column.source) for result in results if getattr(result, column.source) is not None]
    return getattr(statistics, column.over)(known) if known else None


def fast_path(viewer: User, filters: Filters) -> dict[str, dict]:
    names = ("passed", "tried", "runs", "left_out", "other_class", "fast", "sure", "ratios")
    return {
        row.key: {name: getattr(row, name) for name in names} | {"eager": row.eager.ratio, "best": row.best.ratio} | row.costs
        for row in board(viewer, filters).entries
    }


@pytest.mark.slow
def test_every_board_is_what_a_naive_recomputation_gives(people):
    draws = random.Random(7)
    runs = play(people, draws)
    own = Suite.objects.create(team=people.alice.personal_team, name="own", visibility=EVERYONE)
    level3 = [Task.objects.get(team=people.alice.personal_team, name=name).sha for name in TASKS[:5]]
    compared = 0
    for _ in range(ROUNDS):
        change(draws, people, runs)
        chosen = draws.sample(list(Subject.objects.values_list("sha", flat=True)), 4)
        own.tasks.all().delete()
        SuiteTask.objects.bulk_create(SuiteTask(suite=own, position=n, sha=sha, name=f"task {n}") for n, sha in enumerate(chosen))
        for viewer in (people.alice, people.bob, people.charlie):
            for filters in [*SELECTIONS, Filters(suite=str(own.pk))]:
                if filters.suite == "kernelbench-level3" and viewer == people.charlie:
                    continue  # not one of her suites
                suite = None if not filters.suite else chosen if filters.suite == str(own.pk) else level3
                expected, found = naive(viewer, filters, suite), fast_path(viewer, filters)
                assert found.keys() == expected.keys(), (viewer, filters)
                for key, figures in expected.items():
                    assert found[key].pop("ratios") == figures.pop("ratios"), (viewer, filters, key)
                    assert found[key] == pytest.approx(figures), (viewer, filters, key)
                compared += len(expected)
    assert compared > 200


@pytest.mark.django_db(transaction=True)
def test_two_results_of_one_group_that_come_together_take_turns_in_deciding_which_counts():
    """Neither transaction sees the other's row: unless they took turns, both rows would count."""
    from threading import Event, Thread

    user = User.with_team("ada")
    runs = [make_ranked(user, "a", ratio) for ratio in (2.0, 3.0)]
    for run in runs:
        set_visibility(run, PRIVATE)
    begun = Event()

    def second() -> None:
        begun.set()
        set_visibility(runs[1], TEAM)
        close_old_connections()
        connection.close()

    thread = Thread(target=second)
    with transaction.atomic():
        set_visibility(runs[0], TEAM)
        thread.start()
        begun.wait()
        thread.join(0.5)  # it waits for this transaction
    thread.join(20)
    assert list(Result.objects.exclude(team_runs=None).values_list("run", "team_runs")) == [(runs[0].pk, 2)]
