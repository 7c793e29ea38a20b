"""Results of Ctrl-K: every kind is found by each of its words, and only what the person may see is listed."""

from __future__ import annotations

import re

import pytest
from django.urls import reverse
from django.utils import timezone

from agents.events import NewEvent
from tests.unit.webapp.cast import make_run
from webapp.environment import ROOT
from webapp.runs import artefacts
from webapp.runs.models import Run
from webapp.runs.trace.append import append
from webapp.runs.trace.kernels import kernel_names
from webapp.ui import palette

FIND = reverse("ui:find")
PROGRAM = '''"""A program."""
CUDA = r"""
template <int N>
__global__ void __launch_bounds__(256) fused_bias_gelu(const float* x) {}
__global__ __launch_bounds__(128) void row_reduce(float* y) {}
"""

@triton.jit
def _softmax_rows(x, y):
    pass
'''


def found(client, text: str = "") -> dict[str, list[dict]]:
    return {group["label"]: group["items"] for group in client.get(FIND, {"q": text}).json()["groups"]}


@pytest.fixture
def run(people) -> Run:
    run = make_run(people.alice)
    Run.objects.filter(pk=run.pk).update(title="quokka attention")
    program = artefacts.put(run.team_id, PROGRAM.encode(), "text/x-python", "p.py")
    append(
        run.pk,
        [
            NewEvent(kind="candidate.proposed", payload={"candidate": 1, "title": "first", "sha": program.sha, "program": program.model_dump()}),
            NewEvent(kind="decision.made", payload={"route": "optimise", "reason": "shared memory banks collide × twice"}),
        ],
    )
    return run


def test_each_kind_is_found_and_leads_to_its_place(people, run):
    client = people.client("bob")
    assert found(client, "QUOKKA att")["Runs"][0]["url"] == reverse("runs:run", args=[run.pk])
    assert found(client, "softmax")["Tasks"][0]["url"] == reverse("tasks:task", args=[run.task_id])
    assert found(client, "alic")["People"][0] == {"title": "alice", "url": "/?author=alice", "sub": "runs of this person"}
    assert found(client, "gpu connect")["Pages"][0]["url"] == reverse("fleet:connect")
    kernel = found(client, "bias_gelu")["Kernels"][0]
    assert kernel["title"] == "fused_bias_gelu" and kernel["url"].endswith("/candidates/1/?tab=source")
    event = found(client, "banks coll")["Events"][0]
    assert (
        event["title"] == "shared memory banks collide × twice"
        and event["url"].endswith("#event=2")
        and event["sub"] == "decision of quokka attention"
    )


def test_without_words_the_newest_runs(people, run):
    assert list(found(people.client("alice"))) == ["Runs"]


@pytest.mark.parametrize("text", ["quokka", "bias_gelu", "banks", "alice"])
def test_strangers_find_nothing_of_it(people, run, text):
    assert set(found(people.client("charlie"), text)) <= {"Pages"}


def test_words_that_are_no_words_harm_nothing(people, run):
    client = people.client("alice")
    for text in ("' & | ! <->", "a:*", "\\", "%_", "((", "\0x", "é" * 300, "ab"):
        assert client.get(FIND, {"q": text}).status_code == 200, text
    assert client.post(FIND).status_code == 405


def test_archived_runs_are_left_out(people, run):
    Run.objects.filter(pk=run.pk).update(archived_at=timezone.now())
    client = people.client("alice")
    assert "Runs" not in found(client, "quokka") and "Events" not in found(client, "banks") and "Kernels" not in found(client, "gelu")


def test_the_index_is_of_the_kinds_that_are_searched():
    migration = (ROOT / "webapp/runs/migrations/0010_palette.py").read_text()
    (kinds,) = re.findall('SAID = "(.*)"', migration)
    assert f"IN ({kinds})" in palette.EVENTS


def test_names_of_kernels_are_read_from_the_text():
    assert kernel_names(PROGRAM) == ["fused_bias_gelu", "row_reduce", "_softmax_rows"]
    assert kernel_names('extern "C" void pool_rows(const float* x) {}') == ["pool_rows"]
    assert kernel_names("__global__ " * 50_000) == []
