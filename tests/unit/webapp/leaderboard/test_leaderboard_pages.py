"""The leaderboard's pages: what they show, permissions, suites, exports."""

from __future__ import annotations

import csv
import json
from io import StringIO

import jsonschema
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.urls import reverse

from tests.unit.webapp.ranked import make_ranked, make_suite, make_task
from webapp.accounts.models import AuditEntry, Membership
from webapp.leaderboard import result_rows
from webapp.leaderboard.entries import named
from webapp.leaderboard.exports import VERSION, ResultRow, harmless
from webapp.leaderboard.filters import Filters
from webapp.leaderboard.models import Preference, Result, Suite
from webapp.leaderboard.suites import SuiteRefused, choices, choose, read_tasks
from webapp.review import verdicts
from webapp.runs.models import Run

TABLE, RESULTS = reverse("leaderboard:table"), reverse("leaderboard:results")


def text(client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200, (address, answer.status_code)
    return answer.content.decode()


def test_an_empty_board_says_how_results_get_there(people):
    assert "No verified results yet" in text(people.client("alice"), TABLE)


def test_a_row_says_everything_that_the_figure_depends_on(people):
    make_ranked(people.alice, "softmax", 2.0, llm="gpt-x", dollars=0.12)
    page = text(people.client("alice"), TABLE)
    for said in (
        "stitch · gpt-x",
        "1/1",
        "<b>2.00×</b>",
        "<b>1.33×</b>",
        "100 %",
        "$0.12",
        "H200",
        "fp32-strict",
        "torch.compile",
        "baseline",
        "fast_1",
    ):
        assert said in page, said
    entry = Result.objects.get().entry_id
    page = text(people.client("alice"), reverse("leaderboard:entry", args=[entry]))
    for said in ("softmax", "[1.90, 2.10]", "custom 90 %", "cuda-graph", reverse("leaderboard:result", args=[Result.objects.get().pk])):
        assert said in page, said


def test_every_filter_has_an_address_and_nonsense_opens_the_usual(people):
    make_ranked(people.alice, "softmax", 2.0)
    client = people.client("alice")
    for query in ("workflow=forge", "llm=none", "device=none", "precision=bf16"):
        assert "No verified result matches" in text(client, f"{TABLE}?{query}"), query
    assert "This suite is not one of yours" in text(client, f"{TABLE}?suite=nothing")
    for query in ("p=x", "p=-1", "p=1e99", "sort=nothing", "class=nothing", "against=nothing", "suite=%00"):
        assert "stitch · built-in" in text(client, f"{TABLE}?{query}"), query
    assert Filters.read(client.get(TABLE + "?p=1.5&class=any").wsgi_request.GET).query == "class=any&p=1.5"


def test_addresses_of_single_results_from_before_lead_on(people):
    run = make_ranked(people.alice, "softmax", 2.0)
    answer = people.client("alice").get(f"{TABLE}?run={run.pk}", follow=True)
    assert answer.status_code == 200 and 'id="highlighted"' in answer.content.decode()


def test_the_way_to_the_evidence_is_one_redirect(people):
    run, failed = make_ranked(people.alice, "softmax", 2.0), make_ranked(people.alice, "other", None)
    client = people.client("alice")
    result = Result.objects.get(run=run)
    answer = client.get(reverse("leaderboard:result", args=[result.pk]))
    assert answer.url == f"{reverse('runs:candidate', args=[run.pk, 1])}?verification={result.verification_id}"
    answer = client.get(reverse("leaderboard:result", args=[Result.objects.get(run=failed).pk]))
    assert answer.url == reverse("runs:run", args=[failed.pk])
    assert people.client("charlie").get(reverse("leaderboard:result", args=[result.pk])).status_code == 404


def test_what_a_verdict_left_out_is_listed_with_its_reason(people):
    run = make_ranked(people.alice, "softmax", 9.0)
    make_ranked(people.alice, "other", 2.0)
    verdicts.give(people.bob, run, 1, "questioned", "times a cached answer")
    client = people.client("alice")
    assert "1 result left out" in text(client, TABLE)
    page = text(client, f"{RESULTS}?state=left_out")
    assert "times a cached answer" in page and "? questioned" in page and "1 result" in page
    assert "times a cached answer" not in text(client, f"{RESULTS}?state=confirmed")


@pytest.mark.slow
def test_results_are_filtered_searched_and_of_one_task(people):
    run = make_ranked(people.alice, "softmax", 2.0)
    make_ranked(people.alice, "gelu", None, llm="gpt-x")
    client = people.client("alice")
    for query, count in {
        "": 2, "state=confirmed": 1, "state=unsolved": 1, "q=soft": 1, "q=gpt-x": 1, "q=nothing": 0, "llm=gpt-x": 1, "llm=built-in": 1,
        "precision=bf16": 0, "device=h200": 2, f"task={run.task_id}": 1, f"task={run.task.sha}": 1, "task=no": 0, "whose=published": 0,
        f"entry={Result.objects.get(run=run).entry_id}": 1, "entry=x": 0, "class=custom": 2, "suite=nothing": 0,
    }.items():  # fmt: skip
        assert f">{count} result" in text(client, f"{RESULTS}?{query}"), query


# --- Who may do what


def seen_by(client, run: Run, visibility: str) -> int:
    return client.post(reverse("leaderboard:visibility", args=[Result.objects.get(run=run).pk]), {"visibility": visibility}).status_code


def test_owners_publish_makers_withhold_and_others_look(people):
    run = make_ranked(people.alice, "softmax", 2.0)
    assert seen_by(people.client("bob"), run, "everyone") == 403, "a member who did not make it"
    assert seen_by(people.client("charlie"), run, "everyone") == 404
    assert seen_by(people.client("alice"), run, "nobody") == 400
    assert seen_by(people.client("alice"), run, "everyone") == 302
    assert Run.objects.get(pk=run.pk).published and Result.objects.get(run=run).visibility == "everyone"
    assert seen_by(people.client("charlie"), run, "team") in (403, 404)
    assert seen_by(people.client("alice"), run, "private") == 302
    assert people.client("bob").get(reverse("leaderboard:result", args=[Result.objects.get(run=run).pk])).status_code == 404
    assert [entry.action for entry in AuditEntry.objects.filter(target=run.title).order_by("pk")] == ["run.published", "run.withdrawn"]
    Run.objects.filter(pk=run.pk).update(created_by=people.bob)
    Result.objects.filter(run=run).update(maker=people.bob)
    assert seen_by(people.client("bob"), run, "team") == 302


def test_only_owners_choose_what_the_team_prefers(people):
    address = reverse("leaderboard:preference")
    assert people.client("alice").post(address, {"visibility": "private"}).status_code == 302
    assert Preference.objects.get().visibility == "private"
    make_ranked(people.alice, "softmax", 2.0)
    assert Result.objects.get().visibility == "private"


# --- Suites


def test_imported_levels_and_the_ten_are_suites(people):
    make_suite(people.alice, ["2_b", "10_a", "18_squeeze", "99_z"])
    assert [(choice.key, choice.count) for choice in choices(people.alice)] == [("kernelbench-level3", 4), ("stitchcuda-ten", 10)]
    assert list(choose(people.alice, "kernelbench-level3").names.values()) == ["2_b", "10_a", "18_squeeze", "99_z"]
    assert list(choose(people.alice, "stitchcuda-ten").names.values()) == ["2_b", "18_squeeze"]
    assert choices(people.charlie) == [] and choose(people.charlie, "kernelbench-level3") is None


def test_a_suite_is_made_changed_and_deleted_by_members(people):
    first, second = make_task(people.alice, "first"), make_task(people.alice, "second")
    client = people.client("alice")
    new = reverse("leaderboard:new_suite")
    assert client.post(new, {"name": "Mine", "visibility": "team", "tasks": f"first\n# a comment\n{second.sha} another name"}).status_code == 302
    suite = Suite.objects.get()
    assert list(suite.tasks.values_list("sha", "name")) == [(first.sha, "first"), (second.sha, "another name")]
    again = client.post(new, {"name": "Mine", "visibility": "team", "tasks": "first"})
    assert again.status_code == 422 and "has a suite named" in again.content.decode()
    wrong = client.post(reverse("leaderboard:suite", args=[suite.pk]), {"name": "Mine", "visibility": "team", "tasks": "first\nnothing like it"})
    assert wrong.status_code == 422 and "Line 2" in wrong.content.decode() and "nothing like it" in wrong.content.decode()
    assert suite.tasks.count() == 2
    file = SimpleUploadedFile("suite.txt", text(client, reverse("leaderboard:suite_file", args=[suite.pk])).encode())
    assert client.post(new, {"name": "Copy", "visibility": "everyone", "file": file}).status_code == 302
    copy = Suite.objects.get(name="Copy")
    assert list(copy.tasks.values_list("sha", "name")) == list(suite.tasks.values_list("sha", "name"))
    bad = SimpleUploadedFile("suite.txt", b"\xff\xfe")
    assert "not text in UTF-8" in client.post(new, {"name": "Bad", "visibility": "team", "file": bad}).content.decode()
    assert client.post(reverse("leaderboard:delete_suite", args=[suite.pk])).status_code == 302
    assert list(Suite.objects.all()) == [copy]


def test_suites_of_others_are_read_where_they_are_shown_and_never_changed(people):
    make_task(people.alice, "first")
    for name, visibility in (("open", "everyone"), ("ours", "team"), ("mine", "private")):
        people.client("alice").post(reverse("leaderboard:new_suite"), {"name": name, "visibility": visibility, "tasks": "first"})
    Membership.objects.filter(user=people.bob, team=people.alice.personal_team).update(role=Membership.VIEWER)
    assert [choice.name for choice in choices(people.alice)] == ["mine", "open", "ours"]
    assert [choice.name for choice in choices(people.bob)] == ["open", "ours"]
    assert [choice.name for choice in choices(people.charlie)] == ["open"]
    suites = {suite.name: suite for suite in Suite.objects.all()}
    for person, name, status in (("charlie", "open", 404), ("charlie", "ours", 404), ("bob", "ours", 403), ("bob", "mine", 404)):
        address = reverse("leaderboard:suite", args=[suites[name].pk])
        assert people.client(person).post(address, {"name": "taken", "visibility": "team", "tasks": "first"}).status_code == status, (person, name)
        assert people.client(person).post(reverse("leaderboard:delete_suite", args=[suites[name].pk])).status_code == status
    assert text(people.client("charlie"), reverse("leaderboard:suites")).count("open") >= 1


def test_a_list_without_tasks_is_refused(people):
    with pytest.raises(SuiteRefused, match="The list is empty"):
        read_tasks(people.alice, ["", "# nothing"])


# --- Exports


def test_exports_hold_what_the_pages_show_and_keep_their_schema(people):
    make_ranked(people.alice, "softmax", 2.0, dollars=0.25)
    make_ranked(people.alice, "gelu", None)
    make_ranked(people.charlie, "softmax", 7.0)
    client = people.client("alice")
    schema = client.get(reverse("leaderboard:schema")).json()
    found = client.get(reverse("leaderboard:entries_json") + "?p=1.5").json()
    jsonschema.validate(found, schema["board"])
    assert (found["version"], found["selection"]["device_model"], found["selection"]["p"], found["selection"]["tasks"]) == (
        VERSION,
        "h200",
        1.5,
        ["gelu", "softmax"],
    )
    mine = found["entries"][0] if not found["entries"][0]["baseline"] else found["entries"][1]
    assert (mine["solved"], mine["tasks"], mine["fast_p"], mine["dollars_per_run"]) == (1, 2, 0.5, 0.125)
    results = json.loads(client.get(reverse("leaderboard:json")).getvalue())
    jsonschema.validate(results, schema["results"])
    assert [row["task"] for row in results["results"]] == ["gelu", "softmax"]
    row = results["results"][1]
    assert (row["speedup_vs_eager"], row["speedup_vs_eager_low"], row["best_baseline"], row["torch"]) == (2.0, 1.9, "cuda-graph", "2.13.0")
    assert row["baselines"]["compile"]["baseline_ms"] == 2.4 and len(row["task_sha"]) == len(row["program_sha"]) == 64
    assert json.loads(client.get(reverse("leaderboard:json") + "?q=other").getvalue())["results"] == []


def test_results_go_out_in_pieces(people, monkeypatch):
    monkeypatch.setattr(result_rows, "PIECE", 2)
    for at in range(5):
        make_ranked(people.alice, f"task-{at}", 2.0)
    pieces = list(people.client("alice").get(reverse("leaderboard:json")).streaming_content)
    assert len(pieces) == 5 and len(json.loads(b"".join(pieces))["results"]) == 5


def test_a_result_of_a_new_kind_that_comes_while_a_file_is_made_does_not_cut_it_off(people, monkeypatch):
    make_ranked(people.alice, "softmax", 2.0)
    late = iter([lambda: make_ranked(people.alice, "gelu", 3.0, llm="of tomorrow")])
    monkeypatch.setattr(result_rows, "named", lambda entry: next(late, lambda: None)() and None or named(entry))
    found = json.loads(b"".join(people.client("alice").get(reverse("leaderboard:json")).streaming_content))
    assert [row["task"] for row in found["results"]] == ["softmax"]


def test_tables_have_a_column_for_every_field(people):
    make_ranked(people.alice, "softmax", 2.0)
    client = people.client("alice")
    rows = list(csv.DictReader(StringIO(client.get(reverse("leaderboard:csv")).getvalue().decode())))
    assert set(ResultRow.model_fields) - {"baselines"} <= set(rows[0])
    assert (rows[0]["speedup_vs_eager"], rows[0]["compile_ms"], rows[0]["speedup_vs_cuda-graph_low"][:5]) == ("2.0", "2.4", "1.266")
    entries = list(csv.DictReader(StringIO(client.get(reverse("leaderboard:entries_csv")).content.decode())))
    assert [row["entry"] for row in entries] == ["stitch · built-in", "eager in a CUDA graph", "torch.compile", "PyTorch eager"]
    assert float(entries[0]["speedup_vs_eager_low"]) < 2.0 < float(entries[0]["speedup_vs_eager_high"])


def test_a_spreadsheet_never_takes_a_title_for_a_formula():
    assert [harmless(value) for value in ("=cmd()", "softmax", -1.5)] == ["'=cmd()", "softmax", -1.5]


def test_the_heat_map_has_a_sign_for_everything(people):
    make_ranked(people.alice, "a", 2.0)
    make_ranked(people.alice, "b", 0.5)
    make_ranked(people.alice, "c", 1.0)
    make_ranked(people.alice, "d", None)
    make_ranked(people.alice, "e", 3.0, program_class="orchestration")
    judged = make_ranked(people.alice, "f", 9.0)
    make_ranked(people.alice, "g", 2.0, llm="gpt-x")
    verdicts.give(people.alice, judged, 1, "hack", "times a cached answer")
    found = people.client("alice").get(reverse("leaderboard:cells")).json()
    signs = {entry["name"]: [cell and cell[0] for cell in entry["cells"]] for entry in found["entries"]}
    assert found["tasks"] == list("abcdefg")
    assert signs == {"stitch · built-in": ["+", "-", "=", "x", "o", "?", None], "stitch · gpt-x": [None] * 6 + ["+"]}
