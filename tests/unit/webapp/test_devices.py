"""The devices, and the banner that states which of them run strangers' code without a sandbox."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from verifier.confinement.probe import Probe
from webapp.fleet.announce import Announcement
from webapp.fleet.doctor import Doctor
from webapp.fleet.models import Device
from webapp.runs.workers import verifier_worker

DEVICES = reverse("fleet:devices")
BARE = {"protection": {"sandbox": "process", "layers": ["rlimits"], "missing": ["namespaces: install bubblewrap (apt install bubblewrap)"]}}
WRAPPED = {"protection": {"sandbox": "bubblewrap", "layers": ["seccomp"], "missing": []}}


@pytest.fixture
def cpu(db) -> Device:
    return Device.objects.create(worker="w", kind="cpu", device="cpu", name="Example CPU", model="cpu-x86_64-2c", queue="verify.cpu", doctor=WRAPPED)


def test_without_any_verifier_the_page_says_how_to_start_one(people):
    page = people.client("alice").get(DEVICES).content.decode()
    assert "No GPU is online" in page and "No CPU verifier is online" in page and reverse("fleet:connect") in page


def test_a_device_says_what_it_does_and_what_protects_it(people, cpu):
    Device.objects.update(busy_with="verify softmax")
    page = people.client("alice").get(DEVICES).content.decode()
    assert "Example CPU" in page and "verify softmax" in page and "busy" in page and "bubblewrap sandbox" in page
    assert "No sandbox" not in page and "No GPU is online" in page


def test_a_silent_device_is_offline(people, cpu):
    Device.objects.update(heartbeat_at=timezone.now() - timedelta(minutes=2))
    assert "offline" in people.client("alice").get(DEVICES).content.decode()


def test_every_page_says_so_where_a_device_has_no_sandbox(people, cpu):
    Device.objects.update(doctor=BARE)
    client = people.client("alice")
    for url in (reverse("runs:list"), reverse("tasks:submit"), DEVICES, reverse("leaderboard:table"), "/no/such/page"):
        assert "No sandbox: Example CPU (cpu)" in client.get(url).content.decode(), url
    assert "install bubblewrap" in client.get(DEVICES).content.decode()


def test_a_device_that_is_gone_is_no_warning(people, cpu):
    Device.objects.update(doctor=BARE, heartbeat_at=timezone.now() - timedelta(minutes=2))
    assert "No sandbox: Example CPU" not in people.client("alice").get(reverse("runs:list")).content.decode()


def test_live_updates_are_only_the_cells_that_change(people, cpu):
    page = people.client("alice").get(DEVICES, headers={"HX-Request": "true"}).content.decode()
    assert 'hx-swap-oob="true"' in page and "<html" not in page


def test_a_doctor_that_says_little_is_read_all_the_same():
    assert Doctor.read({}) == Doctor()
    assert Doctor.read({"protection": None, "checks": None}).missing == []


def test_every_page_says_that_a_host_needs_a_sandbox_and_how_it_gets_one(people, cpu):
    fix = "bubblewrap is not installed: apt-get install bubblewrap"
    Device.objects.update(doctor={**BARE, "unusable": f"needs a sandbox: {fix}", "needs_sandbox": fix})
    for url in (reverse("runs:list"), DEVICES):
        page = people.client("alice").get(url).content.decode()
        assert "Needs a sandbox: Example CPU (cpu)" in page and fix in page, url
        assert "It starts automatically" in page and "No sandbox: Example" not in page, url


def test_the_device_its_queue_and_the_choice_of_devices_say_what_they_wait_for(people, cpu):
    fix = "bubblewrap is not installed: apt-get install bubblewrap"
    Device.objects.update(doctor={**BARE, "unusable": f"needs a sandbox: {fix}", "needs_sandbox": fix})
    page = people.client("alice").get(DEVICES).content.decode()
    assert "its jobs wait for a sandbox" in page and "they start by themselves once this is fixed" in page and "✕" in page
    form = people.client("alice").get(reverse("tasks:submit")).content.decode()
    assert f"Needs a sandbox: {fix}. The run stays queued" in form


def test_jobs_wait_for_a_sandbox_and_begin_by_themselves(tmp_path, monkeypatch):
    """Two probes find none and the third finds one: it is announced once, there is one heartbeat, and only then does the worker continue with its
    jobs."""
    lacking = Probe(why="bubblewrap is not installed: apt-get install bubblewrap")
    looks, told = [lacking, lacking, Probe(path="/usr/bin/bwrap")], []
    monkeypatch.setattr(verifier_worker, "probe", lambda: looks.pop(0))
    monkeypatch.setattr(verifier_worker, "waived", lambda: False)
    monkeypatch.setattr(verifier_worker, "AGAIN", 0)
    monkeypatch.setattr(verifier_worker, "in_thread", asyncify)
    announcement = Announcement("cpu", tmp_path)
    monkeypatch.setattr(announcement, "announce", lambda environment, unusable, needs_sandbox: told.append((unusable, needs_sandbox)))
    monkeypatch.setattr(announcement, "beat", lambda: told.append("beat"))
    worker = verifier_worker.VerifierWorker("cpu", announcement)
    asyncio.run(worker._sandboxed())
    assert told == [(f"needs a sandbox: {lacking.why}", lacking.why), "beat"] and not looks


def asyncify(function):
    async def call(*arguments, **options):
        return function(*arguments, **options)

    return call
