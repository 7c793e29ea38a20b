"""*Connect a GPU*: who gets a command, how a host that presents its token is answered, and that the device is shown as soon as it appears."""

from __future__ import annotations

import io
import json
from datetime import timedelta

import pytest
from django.core import signing
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from webapp.fleet import connect, enrolling
from webapp.fleet.models import Device

PAGE, ENROL = reverse("fleet:connect"), reverse("fleet:enrol")
URL = "postgresql://stitchwork_verifier:hush@db.example:5432/stitchwork"


@pytest.fixture
def elsewhere(monkeypatch, tmp_path):
    """Simulates a database on a separate server, for which verifiers have a login."""
    monkeypatch.setenv("DATABASE_URL", "postgresql://app:secret@db.example:5432/stitchwork")
    monkeypatch.setattr(enrolling, "data_dir", lambda: tmp_path)
    enrolling.keep_url(URL)
    return tmp_path


def ask(token: object) -> tuple[int, dict]:
    answer = Client(enforce_csrf_checks=True).post(ENROL, json.dumps({"token": token}), content_type="application/json")
    return answer.status_code, answer.json()


def test_the_operators_command_holds_a_token_that_a_host_can_use(people, elsewhere):
    page = people.client("alice").get(PAGE).content.decode()
    line = page.partition('id="connect-command">')[2].partition("<")[0].split()
    assert line[:4] == [".venv/bin/python", "-m", "webapp.fleet.connect", "http://testserver"]
    assert ask(line[4]) == (200, {"database_url": URL})
    assert "hush" not in page and (elsewhere / "database" / "verifiers_url").stat().st_mode & 0o777 == 0o600


def test_nobody_else_gets_one_and_no_other_token_is_taken(people, elsewhere):
    page = people.client("bob").get(PAGE).content.decode()
    assert "only the person who runs this installation" in page and "webapp.fleet.connect" not in page
    for token in ("", "x", 5, None, enrolling.token_for(people.bob), signing.dumps(people.alice.pk, salt="another")):
        status, said = ask(token)
        assert status == 403 and said["error"], token
    assert Client().post(ENROL, "not json", content_type="application/json").status_code == 400
    assert Client().get(ENROL).status_code == 405


def test_a_token_ends_after_an_hour_and_with_its_person(people, elsewhere, monkeypatch):
    token = enrolling.token_for(people.alice)
    monkeypatch.setattr(enrolling, "VALID_SECONDS", -1)
    assert "expired" in ask(token)[1]["error"]
    monkeypatch.setattr(enrolling, "VALID_SECONDS", 3600)
    people.alice.is_active = False
    people.alice.save()
    assert ask(token)[0] == 403


def test_without_a_login_for_verifiers_the_page_says_what_to_run_first(people, elsewhere):
    (elsewhere / "database" / "verifiers_url").unlink()
    page = people.client("alice").get(PAGE).content.decode()
    assert "manage.py verifier_login" in page and "webapp.fleet.connect" not in page


def test_a_database_on_this_machine_alone_is_said(people, monkeypatch):
    monkeypatch.delenv("DATABASE_URL", raising=False)
    page = people.client("alice").get(PAGE).content.decode()
    assert "accepts connections from this machine only" in page and "manage.py verifier --device cuda:0" in page


def test_a_gpu_appears_the_moment_that_it_is_there(people):
    client = people.client("alice")
    page = client.get(PAGE).content.decode()
    assert "No GPU is online yet" in page
    address = page.partition('hx-get="')[2].partition('"')[0].replace("&amp;", "&")
    assert client.get(address, headers={"HX-Request": "true"}).status_code == 204
    known = {"kind": "cuda", "name": "NVIDIA H200", "model": "h200", "queue": "verify.cuda"}
    Device.objects.create(worker="w", device="cuda:0", **known)
    Device.objects.create(worker="old", device="cuda:1", heartbeat_at=timezone.now() - timedelta(hours=1), **known)
    part = client.get(address, headers={"HX-Request": "true"}).content.decode()
    assert part.count("NVIDIA H200") == 1 and "just connected" in part and "<html" not in part


def test_the_host_keeps_what_it_was_told(tmp_path, monkeypatch):
    asked = []

    def answer(request, timeout):
        asked.append((request.full_url, json.loads(request.data)))
        return io.BytesIO(json.dumps({"database_url": URL}).encode())

    monkeypatch.setattr(connect.urllib.request, "urlopen", answer)
    said = connect.ask("http://pages.example/", "t")
    assert asked == [("http://pages.example/devices/enrol", {"token": "t"})]
    connect.keep(tmp_path, said["database_url"])
    assert connect.kept(tmp_path).stat().st_mode & 0o777 == 0o600
    line, more = connect.command(said, "cuda:0", tmp_path)
    assert line[1:] == ["-m", "webapp.supervisor", "--only", "verifier"]
    assert more == {"DATABASE_URL": URL, "DATA_DIR": str(tmp_path), "STITCHWORK_DEVICES": "cuda:0"}


def test_a_host_that_is_not_the_databases_is_told_so(tmp_path):
    with pytest.raises(connect.ConnectRefused, match="two-hosts"):
        connect.command({"data_dir": str(tmp_path / "none")}, "", tmp_path)
    line, more = connect.command({"data_dir": str(tmp_path)}, "", tmp_path)
    assert line[-3:] == ["verifier", "--device", "cuda:0"] and more["DATA_DIR"] == str(tmp_path)


def test_pages_that_are_none_are_named():
    with pytest.raises(connect.ConnectRefused, match="does not answer"):
        connect.ask("http://127.0.0.1:9", "t")
