"""*Replay this request*: a run's request to a model is sent again, after editing or to another model, and the new reply is shown next to the first
one."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import pytest
from django.urls import reverse

from agents.events import NewEvent
from agents.llm.errors import ModelFailure
from agents.llm.messages import Reply, Usage
from tests.unit.webapp.cast import make_run
from webapp.accounts.models import Membership
from webapp.llm import calls, jobs
from webapp.llm.models import ModelCall, Profile, Replay
from webapp.llm.spend import spend_of
from webapp.runs import artefacts
from webapp.runs.trace.append import append

REQUEST = {
    "messages": [{"role": "system", "content": "You write kernels."}, {"role": "user", "content": "Write softmax."}],
    "purpose": "coder/first", "max_tokens": 2000, "temperature": 0.5,
}  # fmt: skip


class FakeModels:
    def __init__(self, failure: ModelFailure | None = None):
        self.asked, self.failure = [], failure

    async def ask(self, profile, request, *, key, run, on_delta):
        self.asked.append((profile, request, run))
        if self.failure:
            raise self.failure
        return Reply(text="a better one", model="m-2", usage=Usage(input_tokens=30, output_tokens=7), dollars=0.25)


@pytest.fixture
def asked(people):
    """Creates a run with one exchange and returns its `llm.requested`."""
    for name in ("slow", "fast"):
        Profile.objects.create(name=name, kind="openai", model=name)
    run = make_run(people.alice)
    kept = [
        artefacts.put(run.team_id, json.dumps(one).encode(), "application/json", "x.json").model_dump()
        for one in (REQUEST, {"text": "the first one"})
    ]
    exchange = {"key": "code#1", "profile": "slow", "purpose": "coder/first", "role": "coder"}
    done = exchange | {"reply": kept[1], "usage": {"input_tokens": 11, "output_tokens": 5}, "dollars": 0.01, "seconds": 2.5, "spent": {"calls": 1}}
    event, _ = append(
        run.pk,
        [
            NewEvent(kind="llm.requested", agent="coder", payload=exchange | {"request": kept[0]}),
            NewEvent(kind="llm.completed", agent="coder", payload=done),
        ],
    )
    return event


def page_of(event) -> str:
    return reverse("llm:replay", args=[event.run, event.seq])


def work(models: FakeModels) -> None:
    context = SimpleNamespace(additional_context={"orchestrator": SimpleNamespace(models=models)})
    asyncio.run(jobs.replay_request.func(context, Replay.objects.latest("pk").pk))


@pytest.mark.django_db(transaction=True)
def test_an_edited_request_goes_to_another_model_and_costs_the_team(people, asked):
    client = people.client("bob")
    page = client.get(page_of(asked)).content.decode()
    assert "You write kernels." in page and "Write softmax." in page and '<option value="slow" selected>' in page and 'value="2000"' in page
    answer = client.post(
        page_of(asked), {"profile": "fast", "max_tokens": "500", "temperature": "", "message.0": "", "message.1": "Write it\r\nfaster."}
    )
    shown = client.get(answer.headers["Location"]).content.decode()
    assert "the first one" in shown and "11 tokens in, 5 out" in shown and "$0.0100" in shown and "waiting" in shown
    asking = {"headers": {"HX-Request": "true"}}
    assert client.get(answer.headers["Location"], **asking).status_code == 204
    models = FakeModels()
    work(models)
    (profile, request, run), row = models.asked[0], Replay.objects.get()
    assert (profile, run) == ("fast", str(row.run_id)) and [m.content for m in request.messages] == ["Write it\nfaster."]
    assert (request.max_tokens, request.temperature, request.purpose) == (500, None, "coder/first")
    part = client.get(answer.headers["Location"], **asking).content.decode()
    assert "a better one" in part and "30 tokens in, 7 out" in part and "$0.2500" in part and "hx-get" not in part
    work(models)
    assert len(models.asked) == 1, "answered once"
    calls.forget(row.run)
    assert [(spent["profile"], spent["cost"]) for spent in spend_of([row.team])] == [("fast", 0.25)]
    assert "selected>fast" in client.get(page_of(asked), {"of": row.pk}).content.decode().replace('value="fast" ', "")


@pytest.mark.django_db(transaction=True)
def test_a_model_that_does_not_answer_is_said(people, asked):
    client = people.client("alice")
    answer = client.post(page_of(asked), {"profile": "slow", "max_tokens": "500", "message.0": "a", "message.1": "b"})
    work(FakeModels(ModelFailure("refused", "the key is refused", "set FAST_KEY")))
    assert "the key is refused. set FAST_KEY" in client.get(answer.headers["Location"]).content.decode()
    assert ModelCall.objects.get(seq__lt=0).failed


def test_what_cannot_be_sent_is_refused_at_its_place(people, asked):
    client = people.client("alice")
    sound = {"profile": "fast", "max_tokens": "500", "message.0": "a", "message.1": "b"}
    for change in ({"profile": "none"}, {"max_tokens": "0"}, {"temperature": "9"}, {"message.0": " ", "message.1": ""}):
        answer = client.post(page_of(asked), sound | change)
        assert answer.status_code == 422 and "field-error" in answer.content.decode(), change
    assert not Replay.objects.exists()


def test_whoever_may_only_look_sends_nothing(people, asked):
    assert people.client("charlie").get(page_of(asked)).status_code == 404
    Membership.objects.filter(user=people.bob).update(role=Membership.VIEWER)
    assert people.client("bob").post(page_of(asked), {}).status_code == 403
    assert people.client("alice").get(reverse("llm:replay", args=[asked.run, 99])).status_code == 404
