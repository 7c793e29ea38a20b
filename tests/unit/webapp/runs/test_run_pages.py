"""The run, candidate and timeline pages, with their fragments and files, for Alice (owner), Bob (her team) and Charlie (an outsider)."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.template.loader import render_to_string
from django.urls import reverse

from agents.journal import read_trace
from agents.projection import project
from tests.browser import sample_run
from verifier.jobs import JobResult
from verifier.report import CLOCK, Report, Trial, WrongTensor
from webapp.accounts.models import Membership
from webapp.runs import artefacts
from webapp.runs.models import Event, Run, Verification
from webapp.runs.pages.evidence import Evidence

EXAMPLE = Path(__file__).parents[4] / "examples" / "traces" / "attention"


@pytest.fixture
def run(people) -> Run:
    run = sample_run.create_run(people.alice)
    sample_run.play(run)
    run.refresh_from_db()
    return run


def url(name: str, run: Run, *args) -> str:
    return reverse(f"runs:{name}", args=[run.pk, *args])


def pages(run: Run) -> list[str]:
    sha = run.candidates.get(number=4).timeline.sha
    tabs = ["diff", "report", "timeline", "kernels", "source"]
    return [
        url("run", run),
        url("events", run),
        url("task_source", run),
        url("best", run),
        url("artefact", run, sha),
        url("candidate", run, 4),
        url("program", run, 4),
        *[url("fragment", run, 4, tab) for tab in tabs],
        url("timeline", run, sha),
    ]


@pytest.mark.slow
def test_team_mates_see_everything_and_outsiders_nothing(people, run):
    for name, status in [("alice", 200), ("bob", 200), ("charlie", 404)]:
        client = people.client(name)
        assert {client.get(page).status_code for page in pages(run)} == {status}, name


def test_an_anonymous_visitor_signs_in_first(client, run):
    assert {client.get(page).status_code for page in pages(run)} == {302}


def test_a_published_run_is_open_to_all_who_can_sign_in_but_not_its_controls(people, run):
    Run.objects.filter(pk=run.pk).update(published=True)
    client = people.client("charlie")
    assert {client.get(page).status_code for page in pages(run)} == {200}
    assert "data-action" not in client.get(url("run", run)).content.decode()
    assert client.post(url("control", run), {"action": "cancel"}).status_code == 403


def test_a_published_run_opens_no_other_artefact_of_its_team(people, run):
    secret = artefacts.put(run.team_id, b"of another run", "text/plain", "notes.txt").sha
    Run.objects.filter(pk=run.pk).update(published=True)
    assert people.client("charlie").get(url("artefact", run, secret)).status_code == 404
    assert people.client("bob").get(url("artefact", run, secret)).status_code == 200


def test_the_page_says_the_result_before_any_script_runs(people, run):
    page = people.client("alice").get(url("run", run)).content.decode()
    assert "Faster (confirmed)" in page and "1.31×" in page and "2.39×" in page and "Download best.py" in page
    assert "is faster" in page


def test_nothing_is_inline_that_the_content_security_policy_refuses(people, run):
    client = people.client("alice")
    for page in pages(run):
        answer = client.get(page)
        if "text/html" in answer.headers["Content-Type"]:
            text = answer.content.decode()
            assert ' style="' not in text and "<style" not in text and " onclick=" not in text


def test_events_come_in_order_after_the_cursor(people, run):
    client = people.client("bob")
    first = client.get(url("events", run), {"since": 0, "limit": 5}).json()
    assert [event["seq"] for event in first["events"]] == [1, 2, 3, 4, 5]
    assert first["last"] == 5 and first["head"] == run.last_seq
    rest = client.get(url("events", run), {"since": 5}).json()
    assert [event["seq"] for event in rest["events"]] == list(range(6, run.last_seq + 1))
    assert client.get(url("events", run), {"since": run.last_seq}).json() == {"events": [], "last": run.last_seq, "head": run.last_seq}
    assert client.get(url("events", run), {"since": "x"}).status_code == 400
    assert set(rest["events"][0]) == {"v", "run", "seq", "at", "span", "parent", "agent", "kind", "payload"}


def test_control_is_for_members_and_becomes_an_event(people):
    run = sample_run.create_run(people.alice)
    sample_run.play(run, stop_after=20)
    assert people.client("charlie").post(url("control", run), {"action": "pause"}).status_code == 404
    assert people.client("bob").post(url("control", run), {"action": "explode"}).status_code == 400
    answer = people.client("bob").post(url("control", run), {"action": "pause"}, headers={"Accept": "application/json"})
    assert answer.status_code == 202
    event = Event.objects.filter(run=run).order_by("-seq").first()
    assert (event.kind, event.payload["action"], event.payload["by"]) == ("control.requested", "pause", "bob")
    Membership.objects.filter(user=people.bob, team=run.team).update(role=Membership.VIEWER)
    assert people.client("bob").post(url("control", run), {"action": "pause"}).status_code == 403
    assert people.client("bob").get(url("control", run)).status_code == 405


def test_a_run_that_has_ended_is_not_steered(people, run):
    assert people.client("alice").post(url("control", run), {"action": "cancel"}).status_code == 409


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", "against candidate 3"),
        ("?against=task", "against the reference"),
        ("?against=2&view=split", "against candidate 2"),
        ("?view=nonsense", "inline"),
    ],
)
def test_a_diff_is_against_what_was_asked_for(people, run, query, expected):
    page = people.client("alice").get(url("fragment", run, 4, "diff") + query).content.decode()
    assert expected in page and "<mark>" in page or "task" in query


@pytest.mark.parametrize("query", ["?against=99", "?against=x", "?against=-1", "?against=99999999999999999999"])
def test_a_diff_against_nothing_is_not_found(people, run, query):
    assert people.client("alice").get(url("fragment", run, 4, "diff") + query).status_code == 404


def test_the_first_candidate_is_compared_with_the_reference(people, run):
    assert "against the reference" in people.client("alice").get(url("fragment", run, 1, "diff")).content.decode()


def test_a_report_shows_all_its_evidence(people, run):
    page = people.client("alice").get(url("fragment", run, 4, "report")).content.decode()
    evidence = ["PyTorch eager", "torch.compile", "heavy-tailed", "1.5e-06", "bubblewrap", "cgroup v2", "loads a library", "line 31", "block 24"]
    evidence += ["not measured on this device", "the CPU device has no throttle counter", "custom", "97 %", "78 %", "g++ 12.2.0", "full", "quick"]
    for words in evidence:
        assert words in page, words


def test_a_report_of_a_wrong_program_says_what_is_wrong_and_no_speedup(people, run):
    page = people.client("alice").get(url("fragment", run, 1, "report")).content.decode()
    assert "out[17, 4096] is nan" in page and "wrong result" in page
    assert 'class="speedup' not in page


def test_the_other_measurement_can_be_asked_for(people, run):
    quick = run.verifications.get(candidate_number=4, tier="quick")
    page = people.client("alice").get(url("candidate", run, 4), {"tab": "report", "verification": quick.pk}).content.decode()
    assert "quick: against eager only" in page
    assert people.client("alice").get(url("candidate", run, 4), {"tab": "report", "verification": "nonsense"}).status_code == 200


def test_a_candidate_without_a_verdict_says_so(people):
    run = sample_run.create_run(people.alice)
    last = sample_run.play(run)
    proposed = next(event.seq for event in run.events.order_by("seq") if event.kind == "candidate.proposed")
    fresh = sample_run.create_run(people.alice, "in the middle")
    assert proposed < last
    sample_run.play(fresh, stop_after=proposed)
    client = people.client("alice")
    assert "hasn't been verified" in client.get(url("fragment", fresh, 1, "report")).content.decode()
    assert {client.get(url("fragment", fresh, 1, tab)).status_code for tab in ["diff", "kernels", "timeline", "source"]} == {200}
    assert client.get(url("best", fresh)).status_code == 404


def test_a_page_says_which_policy_wrote_the_program(people, run):
    for number, said in ((1, False), (4, True)):
        page = people.client("alice").get(url("candidate", run, number)).content.decode()
        assert ("written by coder (/models/coder@3f2a1c9d04be-40)" in page) == said


def test_kernels_resources_and_compiler_output(people, run):
    page = people.client("alice").get(url("fragment", run, 4, "kernels")).content.decode()
    assert "softmax_rows" in page and "own" in page and "loop vectorized" in page and "2184" in page


def test_files_are_safe_to_open(people, run):
    client = people.client("alice")
    task = client.get(url("task_source", run))
    assert "class Model(" in task.content.decode() and task.headers["X-Content-Type-Options"] == "nosniff"
    best = client.get(url("best", run))
    assert "class ModelNew" in best.content.decode() and "attachment" in best.headers["Content-Disposition"]
    sha = run.candidates.get(number=2).program.sha
    stored = client.get(url("artefact", run, sha))
    assert stored.headers["Content-Security-Policy"] == "default-src 'none'; sandbox"
    assert client.get(url("artefact", run, sha), headers={"If-None-Match": stored.headers["ETag"]}).status_code == 304


def test_an_artefact_that_claims_to_be_a_page_is_only_bytes(people, run):
    ref = artefacts.put(run.team_id, b"<script>alert(1)</script>", "text/html", 'x"\r\nSet-Cookie: a=b.html')
    answer = people.client("alice").get(url("artefact", run, ref.sha))
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert answer.headers["Content-Disposition"].startswith("attachment") and "\n" not in answer.headers["Content-Disposition"]


def test_a_timeline_page_names_its_candidate_and_the_others(people, run):
    page = people.client("alice").get(url("timeline", run, run.candidates.get(number=4).timeline.sha)).content.decode()
    assert "Timeline of candidate 4" in page and "the reference" in page and "data-worker" in page
    assert people.client("alice").get(url("timeline", run, run.candidates.get(number=4).program.sha)).status_code == 404


def test_what_a_program_says_is_never_markup(people):
    run = sample_run.create_run(people.alice, sample_run.HOSTILE)
    sample_run.play(run)
    page = people.client("alice").get(url("run", run)).content.decode()
    assert "<img src=x" not in page and "<script>document" not in page


def shown(report: Report, **evidence) -> str:
    given = {"report": report, "evidence": {"comparisons": [], **evidence}, "run": Run(), "candidate": {"number": 1}}
    return " ".join(render_to_string("runs/_report.html", given).split())


def recorded() -> Report:
    events, stored = read_trace(EXAMPLE)
    return JobResult.model_validate_json(dict(stored)[project(events).best_candidate().report.sha]).report


def test_a_report_lists_every_wrong_tensor_and_repeats_no_norm():
    wrong = [
        WrongTensor(name="out", wrong=1200, elements=4096, first=[0, 3], value="1.5", expected="1", where="dimension 1: the last 4 of 100"),
        WrongTensor(name="bn.running_mean", wrong=1, elements=1, first=[0], value="0", expected="1"),
    ]
    usual = "max |a-b| / rms(b)"
    trials = [Trial(name="negative", seed=1, ok=False, norm=usual, detail="out: 1,200 of 4,096 elements are off", wrong=wrong)]
    trials += [Trial(name="large", seed=2, ok=True, norm=usual), Trial(name="state after the timed calls", seed=0, ok=True, norm="max |a-b|")]
    report = recorded().model_copy(update={"trials": trials})
    evidence = Evidence(Verification(), "wrong_result", report)
    page = shown(report, trials=evidence.trials, norm=evidence.norm)
    assert '<span class="mono">out</span>: 1 200 of 4 096 elements off, dimension 1: the last 4 of 100' in page
    assert '<span class="mono">bn.running_mean</span>: 1 of 1 element off' in page
    assert page.count(usual) == 1 and page.count("Measured as max |a-b|<") == 1


def test_a_report_says_how_its_calls_were_timed_and_what_they_were_charged_for():
    report = recorded()
    assert "version 1 of the clock" in shown(report) and "not comparable" in shown(report) and "earlier clock" in shown(report)
    report.timing.clock, report.timing.lead_in, report.timing.counted, report.timing.round_trip_ms = CLOCK, 2, 6, 0.05
    report.timing.charged_ms, report.timing.charged_for, report.timing.preempted = 0.012, "work begins before the clock", 0.07
    report.untried = ["negative: the task itself does not stay finite"]
    text = shown(report, device_ms=0.001, shapes=["float32[4, 8]"])
    assert "2 lead-in calls, then 6 that count" in text and "earlier clock" not in text
    assert "12 µs are added to each call: work begins before the clock" in text and "7 % of the calls" in text
    assert "50 µs: cost of an empty exchange on this host" in text and "1 µs of kernels in one observed call" in text
    assert "Not tried" in text and "negative: the task itself does not stay finite" in text and "Tested with inputs float32[4, 8]" in text
    report.timing.lead_in = None
    assert "one by one: their inputs and outputs are too large for a series" in shown(report)


def test_a_busy_host_is_named_instead_of_the_program():
    report = recorded().model_copy(update={"status": "inconclusive", "timing": None, "message": "this host is busy: calls were preempted"})
    assert "This host was busy" in shown(report) and "No fault was found in the program" in shown(report)
    report.message = "the clocks disagree"
    assert "This host was busy" not in shown(report)


def test_a_report_says_where_the_time_of_its_measurement_went():
    report = recorded()
    assert "Measured for" not in shown(report), "recorded before it was noted"
    report.timing.measuring, report.timing.waiting, report.timing.preparing = 31.2, 75.0, {"compile": 29.0}
    text = shown(report)
    assert "<dt>Measured for</dt><dd>31 s, and waited 1 min 15 s for other verifiers of the device</dd>" in text and "compile 29.0 s" in text
