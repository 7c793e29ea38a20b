"""The timeline's page and its export: what they pass to the script, what they refuse, and how the export is sent."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path

import pytest
from django.test import AsyncClient
from django.urls import reverse

from agents.events import NewEvent
from tests.unit.webapp.cast import make_run
from verifier.profiling.timeline import Timeline
from webapp.runs import artefacts
from webapp.runs.models import Run
from webapp.runs.trace.append import append

DATA = Path(__file__).parents[4] / "tests/data"
MEDIA_TYPE = "application/x-stitchwork-timeline"


def attach(run: Run, data: bytes, candidate: int | None) -> str:
    stored = artefacts.put(run.team_id, data, MEDIA_TYPE, "timeline.stwtl")
    append(run.pk, [NewEvent(kind="profile.attached", payload={"candidate": candidate, "tool": "nsys", "timeline": stored.model_dump()})])
    return stored.sha


def recorded(name: str) -> bytes:
    return (DATA / f"{name}-h200-nsys.timeline").read_bytes()


@pytest.fixture
def run(people) -> Run:
    return make_run(people.alice)


@pytest.fixture
def reference(run) -> str:
    return attach(run, recorded("linear-norm"), None)


@pytest.fixture
def candidate(run, reference) -> str:
    return attach(run, recorded("softmax"), 1)


def page(people, run: Run, sha: str, **query):
    return people.client("alice").get(reverse("runs:timeline", args=[run.pk, sha]), query)


def lanes(response) -> list[dict]:
    return json.loads(response.context["lanes"])


def test_alone_and_against_another(people, run, reference, candidate):
    alone = page(people, run, candidate)
    assert [lane["sha"] for lane in lanes(alone)] == [candidate]
    both = page(people, run, candidate, against=reference)
    assert [(lane["sha"], lane["name"]) for lane in lanes(both)][0] == (reference, "the reference")
    assert [lane["sha"] for lane in lanes(page(people, run, candidate, against="reference"))] == [reference, candidate]
    assert [lane["sha"] for lane in lanes(page(people, run, reference, against="reference"))] == [reference]
    assert page(people, run, candidate, against="0" * 64).status_code == 404


def test_the_reference_has_no_kernels_of_its_own(people, run, reference):
    assert lanes(page(people, run, reference))[0]["own"] == []


def test_the_tab_of_perfetto_keeps_its_tie_to_the_page(people, run, reference):
    assert page(people, run, reference)["Cross-Origin-Opener-Policy"] == "same-origin-allow-popups"


def test_a_timeline_of_another_run_of_the_team_is_not_this_runs(people, run, reference):
    other = make_run(people.alice)
    client = people.client("alice")
    for name in ("timeline", "timeline_trace"):
        assert client.get(reverse(f"runs:{name}", args=[other.pk, reference])).status_code == 404
        assert people.client("charlie").get(reverse(f"runs:{name}", args=[run.pk, reference])).status_code == 404


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("packed", [True, False])
def test_the_export_is_sent_in_pieces(people, run, packed):
    timeline = Timeline.from_bytes(recorded("linear-norm"))
    sha = attach(run, timeline.to_bytes(), None)

    async def fetch() -> tuple[dict, list[bytes]]:
        client = AsyncClient()
        await client.aforce_login(people.alice)
        headers = {"accept-encoding": "gzip"} if packed else {}
        response = await client.get(reverse("runs:timeline_trace", args=[run.pk, sha]), headers=headers)
        assert response.status_code == 200 and response.streaming
        return response.headers, [piece async for piece in response]

    headers, pieces = asyncio.run(fetch())
    assert (headers.get("Content-Encoding") == "gzip") == packed
    body = b"".join(pieces)
    trace = json.loads(gzip.decompress(body) if packed else body)
    assert sum(event["ph"] == "X" for event in trace["traceEvents"]) == timeline.events
    assert headers["Content-Disposition"].endswith('reference.trace.json"')


def test_bytes_that_are_no_timeline_are_not_exported(people, run):
    sha = attach(run, b"something else", None)
    response = people.client("alice").get(reverse("runs:timeline_trace", args=[run.pk, sha]))
    assert response.status_code == 422
    assert b"not a Stitchwork timeline" in response.content


def test_the_page_has_the_counters_of_the_kernels_that_the_profile_beside_it_counted(people, run):
    kernel = {"name": "softmax", "own": True, "calls": 1, "total_us": 9, "mean_us": 9, "share": 1, "occupancy": 0.5, "occupancy_possible": 0.75}
    counted = kernel | {"occupancy_limit": "registers", "metrics": {"gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": 61.0}}
    plain = kernel | {"name": "fill", "occupancy": None, "occupancy_possible": None}
    profile = {
        "task": "0" * 64, "tool": "nsys", "tool_version": "2025.3", "iterations": 5, "wall_us_per_iteration": 9, "kernels": [counted, plain],
        "program": None, "counters_reason": "", "counters_tool": "ncu",
    }  # fmt: skip
    timeline = artefacts.put(run.team_id, recorded("softmax"), MEDIA_TYPE, "timeline.stwtl")
    stored = artefacts.put(run.team_id, json.dumps(profile).encode(), "application/json", "profile.json")
    payload = {"candidate": None, "tool": "nsys", "timeline": timeline.model_dump(), "profile": stored.model_dump()}
    append(run.pk, [NewEvent(kind="profile.attached", payload=payload)])
    lane = lanes(page(people, run, timeline.sha))[0]
    assert dict(lane["kernels"]["softmax"]) == {
        "memory": "61 % of its peak",
        "occupancy": "50 % of 75 % possible",
        "occupancy is limited by": "registers",
    }
    assert "fill" not in lane["kernels"]


def test_a_timeline_without_a_profile_has_no_counters(people, run, reference):
    lane = lanes(page(people, run, reference))[0]
    assert lane["kernels"] == {}
