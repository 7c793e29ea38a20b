from __future__ import annotations

import threading
import uuid

import pytest
from django.db import connection

from agents.events import NewEvent
from agents.ports import LeaseLost
from webapp.runs.models import Event, Run
from webapp.runs.trace.append import NoSuchRun, PayloadTooLarge, append
from webapp.runs.trace.reading import events_after


def note(text: str = "hello") -> NewEvent:
    return NewEvent(kind="note.added", span="plan/a", agent="person", payload={"text": text, "to": "planner", "by": "ada"})


def test_numbers_without_gaps_and_returns_what_was_written(run):
    first = append(run.pk, [note("a"), note("b")])
    second = append(run.pk, [note("c")])
    assert [e.seq for e in first + second] == [1, 2, 3]
    assert [e.parent for e in first] == ["plan", "plan"]
    assert [e.model_dump() for e in first + second] == events_after(run, 0, 10)
    assert Run.objects.get(pk=run.pk).last_seq == 3


def test_json_comes_back_as_it_went_in(run):
    payload = {"z": 1, "a": 1e22, "tiny": 1e-7, "one": 1.0, "zero": -0.0, "text": "é\n\u2028", "nested": {"y": [1, 2.50], "x": None}}
    (written,) = append(run.pk, [NewEvent(kind="effect.completed", payload=payload)])
    (read,) = events_after(run, 0, 1)
    assert str(read["payload"]) == str(payload) == str(written.payload)


def test_what_postgres_cannot_keep_is_replaced_character_for_character(run):
    """A compiler's message, a program's exception or half an emoji from a model must not end a run."""
    payload = {"text": "a\0b\ud83d!", "list": [{"k\0": "\udc00"}, "\\u0000", 1.0]}
    (written,) = append(run.pk, [NewEvent(kind="effect.completed", payload=payload)])
    (read,) = events_after(run, 0, 1)
    assert read["payload"] == written.payload == {"text": "a\ufffdb\ufffd!", "list": [{"k\ufffd": "\ufffd"}, "\\u0000", 1.0]}


def test_old_lease_is_refused(run):
    Run.objects.filter(pk=run.pk).update(lease_epoch=2)
    with pytest.raises(LeaseLost):
        append(run.pk, [note()], epoch=1)
    assert [e.seq for e in append(run.pk, [note()], epoch=2)] == [1]
    assert [e.seq for e in append(run.pk, [note()])] == [2]  # a person has no lease


def test_long_payload_is_refused_and_leaves_nothing(run):
    with pytest.raises(PayloadTooLarge, match="artefact"):
        append(run.pk, [note(), note("x" * 20_000)])
    assert Event.objects.count() == 0 and Run.objects.get(pk=run.pk).last_seq == 0


def test_unknown_run(db):
    with pytest.raises(NoSuchRun):
        append(uuid.uuid4(), [note()])


@pytest.mark.django_db(transaction=True)
def test_a_reader_that_follows_four_writers_misses_nothing(user):
    """Sequence numbers become visible in order: a reader that requests `seq > last` sees each event once."""
    from tests.unit.webapp.cast import make_run

    run = make_run(user)
    each = 40

    def write() -> None:
        try:
            for _ in range(each):
                append(run.pk, [note()])
        finally:
            connection.close()

    writers = [threading.Thread(target=write) for _ in range(4)]
    for writer in writers:
        writer.start()
    seen: list[int] = []
    while len(seen) < 4 * each:
        alive = any(writer.is_alive() for writer in writers)
        new = [e["seq"] for e in events_after(run, seen[-1] if seen else 0, 1000)]
        seen += new
        assert new or alive
    assert seen == list(range(1, 4 * each + 1))
