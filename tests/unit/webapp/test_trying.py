"""Checking a source while it is being typed: requested once, dropped when its author continues typing, stored with its stages; and the cost of a run,
estimated from the cost of earlier runs."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from tests.unit.webapp.cast import SOURCE, make_run
from tests.unit.webapp.people import add_verification
from verifier.jobs import JobResult, StageEvent
from verifier.source import Problem
from verifier.task import Admission
from webapp.accounts.models import Membership
from webapp.fleet.models import Device
from webapp.runs import estimates
from webapp.runs.models import Run, Verification
from webapp.tasks import admitting, trying
from webapp.tasks.models import TryOut

ASKED = {"source": SOURCE, "device": "cpu", "precision": "fp32-strict", "mode": "train"}
PROBLEM = Problem(line=7, message="forward raised RuntimeError", hint="look at the shapes")


class Answering:
    """A verifier's client that reports two stages and returns the given result."""

    def __init__(self, result: JobResult | Exception):
        self.result = result

    async def run(self, job, on_stage):
        on_stage(StageEvent(stage="admit", status="started"))
        on_stage(StageEvent(stage="admit", status="passed", seconds=0.5))
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


def online(kind: str = "cpu") -> Device:
    return Device.objects.create(worker=kind, kind=kind, device=kind, name="Example CPU", model="m", queue=f"verify.{kind}")


def execute(row: TryOut, result: JobResult | Exception) -> TryOut:
    asyncio.run(admitting.execute(Answering(result), "Example CPU", row.pk))
    row.refresh_from_db()
    return row


def ask(people, source: str = SOURCE, **changes) -> TryOut:
    asked = {"device_kind": "cpu", "precision": "fp32-strict", "mode": "train"} | changes
    return trying.ask(people.alice.personal_team, people.alice, source, **asked)


def test_the_same_question_is_asked_once_and_another_drops_it(people):
    first = ask(people)
    assert ask(people).pk == first.pk and TryOut.objects.count() == 1
    second = ask(people, SOURCE + "# more\n")
    first.refresh_from_db()
    assert (first.state, second.state) == ("dropped", "queued")
    again = ask(people)
    second.refresh_from_db()
    assert (again.pk, again.state, second.state) == (first.pk, "queued", "dropped")
    assert ask(people, precision="bf16").pk != first.pk


@pytest.mark.django_db(transaction=True)
def test_what_the_verifier_finds_is_kept_with_its_stages(people):
    row = execute(ask(people), JobResult(admission=Admission(task="t", ok=False, problems=[PROBLEM])))
    assert (row.state, row.device_name, row.error) == ("finished", "Example CPU", "")
    assert row.stages == [{"stage": "admit", "status": "passed", "seconds": 0.5, "detail": ""}] and trying.problems(row) == [PROBLEM]
    assert ask(people).state == "finished"


@pytest.mark.django_db(transaction=True)
def test_a_host_that_fails_is_asked_again(people):
    row = execute(ask(people), OSError("no space left"))
    assert row.state == "finished" and "no space left" in row.error and row.admission is None
    assert ask(people).state == "queued"


@pytest.mark.django_db(transaction=True)
def test_what_was_dropped_is_not_begun(people):
    row = ask(people)
    TryOut.objects.update(state="dropped")
    assert execute(row, JobResult(error="never seen")).error == ""


def test_a_verifier_that_went_away_is_not_waited_for(people):
    row = ask(people)
    TryOut.objects.update(state="running", started_at=timezone.now() - trying.GIVEN_UP_AFTER - timedelta(seconds=1))
    row.refresh_from_db()
    page = people.client("alice").get(reverse("tasks:try_state", args=[row.pk])).content.decode()
    assert "the verifier went away" in page and "hx-get" not in page
    assert ask(people).state == "queued"


def test_the_page_asks_and_is_told(people):
    client = people.client("alice")
    assert "No CPU verifier is online" in client.post(reverse("tasks:try"), ASKED).content.decode()
    online()
    page = client.post(reverse("tasks:try"), ASKED).content.decode()
    assert 'data-state="queued"' in page and "waiting for the device" in page
    for refused in ({"device": "tpu"}, {"precision": "fp4"}, {"source": "class ("}):
        assert client.post(reverse("tasks:try"), ASKED | refused).status_code == 400
    TryOut.objects.update(state="finished", admission=Admission(task="t", ok=False, problems=[PROBLEM]).model_dump(mode="json"))
    row = TryOut.objects.get()
    shown = people.client("bob").get(reverse("tasks:try_state", args=[row.pk])).content.decode()
    assert "not admitted" in shown and 'data-line="7"' in shown
    assert people.client("charlie").get(reverse("tasks:try_state", args=[row.pk])).status_code == 404


def test_a_viewer_tries_nothing_out(people):
    online()
    Membership.objects.filter(user=people.bob, team=people.alice.personal_team).update(role=Membership.VIEWER)
    answer = people.client("bob").post(reverse("tasks:try"), ASKED | {"team": str(people.alice.personal_team.pk)})
    assert answer.status_code == 403 and not TryOut.objects.exists()


def spent(people, tokens: int, dollars: float, **fields) -> Run:
    used = {"seconds": tokens / 100, "verifier_seconds": tokens / 200, "tokens": tokens, "dollars": dollars, "candidates": 4}
    settings = {"planner": "fast", "coder": "fast", "judge": "fast"}
    return make_run(people.alice, state="finished", outcome="improved", spent=used, settings=settings, finished_at=timezone.now(), **fields)


def test_an_estimate_is_quartiles_of_runs_like_it_and_nothing_below_three(people):
    teams = people.alice.teams.all()
    asked = {"workflow": "stitch", "device_kind": "cpu", "models": {"fast"}}
    spent(people, 1000, 0.1)
    spent(people, 9000, 0.9)
    assert not estimates.estimate(teams, **asked).known
    spent(people, 5000, 0.5)
    found = estimates.estimate(teams, **asked)
    assert found.known and found.runs == 3 and found.spent["tokens"].middle == 5000 and found.spent["dollars"].low == pytest.approx(0.3)
    assert found.success == 1.0 and found.like == "stitch on the CPU with fast"
    assert not estimates.estimate(teams, **asked | {"models": {"built-in"}}).known
    assert not estimates.estimate(people.charlie.teams.all(), **asked).known
    same = estimates.estimate(teams, **asked, task_sha=Run.objects.first().task.sha)
    assert same.like.startswith("this task")


def test_the_queue_is_told_in_jobs_and_seconds(people):
    assert estimates.queue("cpu").before == 0
    online()
    run = make_run(people.alice, state="running")
    now = timezone.now()
    for _ in range(3):
        add_verification(run, started_at=now - timedelta(seconds=20), finished_at=now)
    for number, state in ((3, "queued"), (4, "running")):
        Verification.objects.filter(pk=add_verification(run, number=number, status="").pk).update(state=state)
    found = estimates.queue("cpu")
    assert (found.online, found.running, found.waiting) == (1, 1, 1) and found.seconds == pytest.approx(30, abs=1)
    page = people.client("alice").get(reverse("tasks:estimate"), {"workflow": "stitch", "device": "cpu"}).content.decode()
    assert "after 2 jobs before yours, about 30 s" in page and "none, $0.00" in page and "no estimate yet" in page


def test_the_check_tells_a_plain_module_from_a_task(people):
    client = people.client("alice")
    plain = "import torch\nfrom torch import nn\nimport requests\n\nclass Net(nn.Module):\n    def forward(self, x):\n        return x\n"
    answer = client.post(reverse("tasks:check"), {"kind": "task", "source": plain}).json()
    assert answer["module"] == ["Net()"] and not answer["ok"] and [p["line"] for p in answer["problems"]] == [3]
    answer = client.post(reverse("tasks:check"), {"kind": "task", "source": SOURCE}).json()
    assert answer["ok"] and "module" not in answer and len(answer["sha"]) == 64


def test_a_plain_module_that_is_submitted_is_refused_with_what_to_do(people):
    plain = "from torch import nn\n\nclass Net(nn.Module):\n    def forward(self, x):\n        return x\n"
    answer = people.client("alice").post(reverse("tasks:submit"), {"task": plain, "device": "cpu", "precision": "fp32-strict", "mode": "train"})
    page = answer.content.decode()
    assert answer.status_code == 422 and not Run.objects.exists()
    assert "plain module" in page and "input shapes in the form beside the code" in page and "return x" in page
