"""A diff's page: its sides, its options, and who may see it."""

from __future__ import annotations

import pytest
from django.urls import reverse

from tests.unit.webapp.diffs.programs import NEW, OLD, measured_run
from webapp.runs.models import Run


@pytest.fixture
def run(people) -> Run:
    return measured_run(people.alice)


def page(people, run: Run, sides: str, name: str = "alice", **query):
    return people.client(name).get(reverse("diffs:diff", args=[run.pk, sides]), query)


def test_any_two_candidates_and_the_reference(people, run):
    for sides, heading in (("1...2", "candidate 1"), ("2...1", "candidate 2"), ("task...2", "the reference")):
        answer = page(people, run, sides)
        assert answer.status_code == 200 and heading in answer.content.decode()
    assert "These programs are identical" in page(people, run, "2...2").content.decode()


def test_two_runs_of_the_team(people, run):
    other = measured_run(people.alice, old=NEW, new=OLD)
    answer = page(people, run, f"{other.pk}:2...2").content.decode()
    assert "of softmax" in answer and "Other runs of this task" in answer
    foreign = measured_run(people.charlie)
    assert page(people, run, f"{foreign.pk}:2...2").status_code == 404


def test_sides_that_name_nothing(people, run):
    for sides in ("1...9", "1", "x...2", "1...2...3", "nonsense:1...2", "task:1...2"):
        assert page(people, run, sides).status_code == 404


def test_who_sees_it(people, run):
    assert page(people, run, "1...2", "bob").status_code == 200
    assert page(people, run, "1...2", "charlie").status_code == 404


def test_the_form_leads_to_the_url_of_both_sides(people, run):
    answer = people.client("alice").get(reverse("diffs:choose", args=[run.pk]), {"old": "task", "new": "2", "view": "split", "space": "ignore"})
    assert answer.status_code == 302 and answer.url.endswith("/diff/task...2/?view=split&space=ignore")


def test_rows_on_demand(people, run):
    client, rows = people.client("alice"), reverse("diffs:rows", args=[run.pk, "1...2"])
    assert 'id="R1"' in client.get(rows, {"begin": "0", "end": "4"}).content.decode()
    assert client.get(rows, {"part": "0"}).content.decode().count("<tr") > 10
    assert client.get(rows, {"part": "99"}).content == b""
    assert client.get(rows, {"find": "R20"}).content == b"0" and client.get(rows, {"find": "R2000"}).content == b""
    for wrong in ({"part": "x"}, {"begin": "-1", "end": "2"}, {}):
        assert client.get(rows, wrong).status_code == 404
    assert people.client("charlie").get(rows, {"part": "0"}).status_code == 404


def test_rows_carry_what_comments_hang_on(people, run):
    html = page(people, run, "1...2").content.decode()
    assert 'data-candidate="2"' in html and 'data-side="old"' in html and 'data-side="new"' in html
    assert (
        'data-candidate="2" data-line="1" data-side="new"'
        in people.client("alice").get(reverse("runs:candidate", args=[run.pk, 2]), {"tab": "source"}).content.decode()
    )


def test_white_space_can_be_ignored(people, run):
    other = measured_run(people.alice, old=OLD, new=OLD.replace("a = x", "a  =  x"))
    assert "These programs are identical except for white space" in page(people, other, "1...2", space="ignore").content.decode()


def test_the_candidate_page_compares_with_its_parent(people, run):
    html = people.client("alice").get(reverse("runs:candidate", args=[run.pk, 2])).content.decode()
    assert "parent (candidate 1)" in html and "second version" in html
    split = people.client("alice").get(reverse("runs:candidate", args=[run.pk, 2]), {"against": "task", "view": "split"}).content.decode()
    assert "diff-table split" in split
