"""A trace written by a stranger is either accepted or refused with an explanation; the pages of an accepted one work."""

from __future__ import annotations

import copy
import json
import random
import shutil
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import transaction
from django.test import Client
from django.urls import reverse

from agents import cli
from webapp.environment import ROOT
from webapp.runs.models import Run
from webapp.runs.trace.on_disk import TraceRefused, import_trace

EXAMPLE = ROOT / "examples/traces/attention"
EVENTS = [json.loads(line) for line in (EXAMPLE / "trace.jsonl").read_bytes().splitlines()]
VALUES = ["gone", None, 10**400, "x" * 9000, [], {}, -1, [1], {"a": 1}, "\0", "\ud800", True]
TRIED = 40  # out of several thousand


def places(value: Any, path: tuple = ()) -> Iterator[tuple]:
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ():
        yield (*path, key)
        yield from places(inner, (*path, key)) if len(path) < 3 else ()


def changed(seed: int) -> tuple[list[dict], str]:
    """Returns the example's events with one value in one of them replaced."""
    rng = random.Random(seed)
    events = copy.deepcopy(EVENTS)
    kind = rng.choice(sorted({event["kind"] for event in EVENTS}))
    event = next(event for event in events if event["kind"] == kind)
    path, value = rng.choice(list(places(event["payload"])) or [()]), rng.choice(VALUES)
    inner = event["payload"]
    for key in path[:-1]:
        inner = inner[key]
    if path and value == "gone":
        del inner[path[-1]]
    elif path:
        inner[path[-1]] = value
    return events, f"{kind} {path} {value!r:.20}"


def folder(tmp_path: Path, lines: list[bytes]) -> Path:
    made = tmp_path / "trace"
    shutil.copytree(EXAMPLE, made, dirs_exist_ok=True)
    (made / "trace.jsonl").write_bytes(b"".join(lines))
    return made


def written(tmp_path: Path, events: list[dict]) -> Path:
    return folder(tmp_path, [json.dumps(event).encode() + b"\n" for event in events])


@pytest.mark.slow
def test_a_value_that_is_another(people, tmp_path):
    client = people.client("alice")
    client.raise_request_exception = False
    failed, taken = [], 0
    for seed in range(TRIED):
        events, what = changed(seed)
        with transaction.atomic():
            try:
                run = import_trace(written(tmp_path, events), people.alice.personal_team, people.alice)
            except TraceRefused:
                run = None
            if run is not None:
                taken += 1
                failed += [f"{what}: {url}" for url in pages(run) if client.get(url).status_code >= 500]
            transaction.set_rollback(True)
    assert not failed and 5 < taken < TRIED


def pages(run: Run) -> list[str]:
    return [reverse("runs:run", args=[run.pk]), reverse("runs:list"), f"/api/v1/runs/{run.pk}", f"/api/v1/runs/{run.pk}/candidates"]


FIRST = json.dumps(EVENTS[0]).encode() + b"\n"
BROKEN = {
    "not JSON": [b"{\n"],
    "not UTF-8": [b'{"v": "\xff"}\n'],
    "deep": [b"[" * 200_000 + b"\n"],
    "a list": [b"[]\n"],
    "empty": [b""],
    "no beginning": [json.dumps(EVENTS[1] | {"seq": 1}).encode() + b"\n"],
    "a gap": [FIRST, json.dumps(EVENTS[2]).encode() + b"\n"],
    "a kind that is none": [json.dumps(EVENTS[0] | {"kind": "x"}).encode() + b"\n"],
    "a time that is none": [json.dumps(EVENTS[0] | {"at": "yesterday"}).encode() + b"\n"],
    "a time without a zone": [json.dumps(EVENTS[0] | {"at": "2026-01-01T00:00:00"}).encode() + b"\n"],
    "a year that is none": [json.dumps(EVENTS[0] | {"at": "9999-12-31T23:59:59-23:00"}).encode() + b"\n"],
    "a run that is none": [json.dumps(EVENTS[0] | {"run": "x"}).encode() + b"\n"],
    "a run with another name": [json.dumps(EVENTS[0] | {"run": EVENTS[0]["run"].upper()}).encode() + b"\n"],
    "two runs": [FIRST, json.dumps(EVENTS[1] | {"run": "0" * 32}).encode() + b"\n"],
    "a number beyond": [json.dumps(EVENTS[0] | {"v": 10**30}).encode() + b"\n"],
    "a long span": [FIRST, json.dumps(EVENTS[1] | {"span": "a/" * 9000}).encode() + b"\n"],
    "a null in a span": [FIRST, json.dumps(EVENTS[1] | {"span": "a\0"}).encode() + b"\n"],
    "a large payload": [json.dumps(EVENTS[0] | {"payload": EVENTS[0]["payload"] | {"x": "y" * 20_000}}).encode() + b"\n"],
    "no payload": [json.dumps(EVENTS[0] | {"payload": {}}).encode() + b"\n"],
    "an artefact that is not there": [
        json.dumps(EVENTS[0] | {"payload": EVENTS[0]["payload"] | {"x": {"sha": "0" * 64, "media_type": "a", "bytes": 1}}}).encode() + b"\n"
    ],
    "an artefact that is none": [
        json.dumps(EVENTS[0] | {"payload": EVENTS[0]["payload"] | {"x": {"sha": "0", "media_type": 3, "bytes": "y"}}}).encode() + b"\n"
    ],
}


@pytest.mark.parametrize("lines", BROKEN.values(), ids=BROKEN)
def test_a_trace_that_is_none_is_refused_with_a_sentence(people, tmp_path, lines, capsys):
    made = folder(tmp_path, lines)
    with pytest.raises(CommandError) as caught:
        call_command("import_trace", str(made), user="alice", stdout=StringIO())
    assert str(made) in str(caught.value) and "\n" not in str(caught.value)
    assert Run.objects.count() == 0
    assert cli.main(["show", str(made)]) in (0, 2) and "Traceback" not in "".join(capsys.readouterr())


def test_what_is_no_folder_of_a_trace(people, tmp_path):
    (tmp_path / "trace.jsonl").mkdir()
    with pytest.raises(TraceRefused, match="cannot be read: Is a directory"):
        import_trace(tmp_path, people.alice.personal_team, people.alice)
    made = written(tmp_path / "a", EVENTS)
    next((made / "artefacts").iterdir()).write_bytes(b"other")
    with pytest.raises(TraceRefused, match="does not have the content that its name states"):
        import_trace(made, people.alice.personal_team, people.alice)
    assert Client().get("/healthz").status_code == 200
