from __future__ import annotations

import threading

import pytest
from django.db import connection

from tests.unit.webapp.cast import make_user
from webapp.runs import artefacts
from webapp.runs.models import Artefact, ArtefactChunk


def test_put_and_get(user, monkeypatch):
    monkeypatch.setattr(artefacts, "CHUNK_BYTES", 10)
    data = bytes(range(256))
    ref = artefacts.put(user.personal_team_id, data, "application/octet-stream", "name")
    assert artefacts.get(user.personal_team_id, ref.sha) == data and ref.bytes == 256
    assert ArtefactChunk.objects.count() == 26


def test_nothing_is_something(user):
    ref = artefacts.put(user.personal_team_id, b"", "text/plain")
    assert artefacts.get(user.personal_team_id, ref.sha) == b""


def test_teams_do_not_see_each_others(user):
    ref = artefacts.put(user.personal_team_id, b"mine", "text/plain")
    with pytest.raises(artefacts.ArtefactMissing):
        artefacts.get(make_user("eve").personal_team_id, ref.sha)


@pytest.mark.django_db(transaction=True)
def test_two_writers_of_the_same_bytes():
    team = make_user().personal_team_id
    data = b"x" * 3_000_000

    def put() -> None:
        artefacts.put(team, data, "text/plain")
        connection.close()

    writers = [threading.Thread(target=put) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert Artefact.objects.count() == 1
    assert artefacts.get(team, Artefact.objects.get().sha) == data
