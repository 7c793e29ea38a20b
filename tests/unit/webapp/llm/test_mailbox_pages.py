"""The mailbox: pending requests are shown to the run's team, a reply is sent only once, and the orchestrator finds it."""

from __future__ import annotations

import asyncio

import pytest
from django.urls import reverse

from agents.llm.mailbox import LONGEST_REPLY, NotWaiting, waiting_for
from agents.llm.messages import Message, Request
from tests.unit.webapp.cast import make_run
from tests.unit.webapp.people import People
from webapp.accounts.models import Membership
from webapp.llm import mailbox
from webapp.llm.mailbox import DatabaseMailbox, ReplyRefused, answer, put
from webapp.llm.models import Letter

LIST = reverse("llm:mailbox")
REQUEST = Request(
    messages=[
        Message(role="system", content="You write kernels. <b>No markup.</b>"), Message(role="user", content="Write softmax."),
        Message(role="assistant", content="{"), Message(role="user", content="That was no JSON."),
    ],
    purpose="coder/first",
)  # fmt: skip


def offer(run, key: str = "step-1#1") -> Letter:
    return put(waiting_for("by-hand", REQUEST, key=key, run=str(run.pk)))


@pytest.fixture
def letter(people) -> Letter:
    return offer(make_run(people.alice))


def url(letter: Letter) -> str:
    return reverse("llm:letter", args=[letter.pk])


def test_a_waiting_prompt_is_listed_counted_and_shown_whole(people, letter):
    bob = people.client("bob")
    page = bob.get(LIST).content.decode()
    assert "coder/first" in page and "softmax" in page and "by-hand" in page and 'class="count"' in page
    shown = bob.get(url(letter)).content.decode()
    assert "You write kernels. &lt;b&gt;No markup.&lt;/b&gt;\n\nWrite softmax.\n\n(your reply before)\n\n{\n\nThat was no JSON.</pre>" in shown
    part = bob.get(LIST, headers={"HX-Request": "true"}).content.decode()
    assert "coder/first" in part and "<html" not in part


def test_others_neither_see_nor_answer(people, letter):
    charlie = people.client("charlie")
    assert charlie.get(url(letter)).status_code == 404 and charlie.post(url(letter), {"reply": "x"}).status_code == 404
    assert "coder/first" not in charlie.get(LIST).content.decode()
    Membership.objects.filter(user=people.bob).filter(team=letter.team).update(role=Membership.VIEWER)
    bob = people.client("bob")
    assert "Only members" in bob.get(url(letter)).content.decode()
    assert bob.post(url(letter), {"reply": "x"}).status_code == 403
    letter.refresh_from_db()
    assert letter.reply is None


@pytest.mark.parametrize("reply", ["", "  \r\n\t "])
def test_an_empty_reply_is_refused(people, letter, reply):
    sent = people.client("alice").post(url(letter), {"reply": reply})
    assert sent.status_code == 422 and "The reply is empty" in sent.content.decode()


def test_a_reply_is_sent_once_and_keeps_who_sent_it(people, letter):
    alice, bob = people.client("alice"), people.client("bob")
    assert alice.post(url(letter), {"reply": "```python\r\nx = 1\r\n```"}).status_code == 302
    late = bob.post(url(letter), {"reply": "mine"})
    assert late.status_code == 422 and "answered meanwhile" in late.content.decode()
    letter.refresh_from_db()
    assert letter.reply == "```python\nx = 1\n```" and letter.replied_by == people.alice
    page = bob.get(LIST).content.decode()
    assert "Nothing waits" in page and "Answered lately" in page and "by alice" in page


def test_what_was_withdrawn_takes_no_reply_until_it_is_asked_again(people, letter):
    mailbox._withdraw(letter.name)
    assert "Not sent" in people.client("alice").post(url(letter), {"reply": "x"}).content.decode()
    assert offer(letter.run).pk == letter.pk
    assert people.client("alice").post(url(letter), {"reply": "x"}).status_code == 302
    mailbox._withdraw(letter.name)
    assert mailbox._reply(letter.name) == "x", "a reply stays, whatever becomes of the run"


def test_the_store_refuses_what_is_no_reply(letter):
    with pytest.raises(ReplyRefused, match="longer than"):
        answer(letter.name, "x" * (LONGEST_REPLY // 2 + 1))
    with pytest.raises(NotWaiting):
        answer("nobody/knows-this", "x")
    answer(letter.name, "a\x00b")
    assert mailbox._reply(letter.name) == "ab"


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_the_orchestrators_side_waits_until_somebody_answers():
    from agents.llm.mailbox import ask

    people = People.make()
    run = make_run(people.alice)
    store, said = DatabaseMailbox(), []

    async def session():
        async def on_delta(delta):
            said.append(delta.text)

        asking = asyncio.create_task(ask(store, "by-hand", REQUEST, key="k#1", run=str(run.pk), on_delta=on_delta))
        while not (waiting := await store.list(str(run.pk))):
            await asyncio.sleep(0.05)
        assert [w.key for w in waiting] == ["k#1"] and await store.list() == waiting
        await store.answer(waiting[0].id, "the answer")
        again = await ask(store, "by-hand", REQUEST, key="k#1", run=str(run.pk), on_delta=on_delta)
        return await asking, again, await store.list()

    reply, again, left = asyncio.run(session())
    assert reply.text == again.text == "the answer" and reply.usage is None and left == [] and said == ["the answer"] * 2


@pytest.mark.django_db(transaction=True)
def test_a_check_of_the_mailbox_leaves_nothing_behind():
    store = DatabaseMailbox()

    async def check():
        probe = waiting_for("by-hand", REQUEST, key="check", run="llm-check")
        await store.put(probe)
        await store.withdraw(probe.id)

    asyncio.run(check())
    assert not Letter.objects.exists()
