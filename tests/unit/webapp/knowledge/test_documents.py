"""A team's documents: stored, split, found, cited, and hidden from everyone else."""

from __future__ import annotations

import asyncio

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.urls import reverse

from webapp.accounts.models import Membership
from webapp.knowledge.documents import save
from webapp.knowledge.models import Document, Passage
from webapp.knowledge.ports import TeamLibrary
from webapp.knowledge.search import any_of, search

LIST, NEW = reverse("knowledge:documents"), reverse("knowledge:new_document")
TEXT = """# Notes on the H200

## Bank conflicts

A column of a tile of 32 words lies in one bank. Pad the row to 33 words.

## Launches

Short kernels wait for the host: capture them as a CUDA graph, with <script>alert(1)</script> left out.
"""


@pytest.fixture
def notes(people) -> Document:
    return save(team=people.alice.personal_team, user=people.alice, title="Notes on the H200", kind="markdown", text=TEXT)


def found(people, name: str, query: str) -> str:
    return people.client(name).get(LIST, {"q": query}).content.decode()


def test_a_pasted_document_gets_its_title_and_its_passages(people):
    client = people.client("alice")
    team = str(people.alice.personal_team_id)
    answer = client.post(NEW, {"text": TEXT, "kind": "markdown", "team": team, "title": ""}, follow=True)
    page = answer.content.decode()
    kept = Document.objects.get()
    assert answer.redirect_chain[-1][0] == reverse("knowledge:document", args=[kept.pk])
    assert kept.title == "Notes on the H200" and kept.created_by == people.alice
    assert list(kept.passages.order_by("index").values_list("heading", flat=True)) == ["Bank conflicts", "Launches"]
    assert 'id="p1"' in page and "&lt;script&gt;" in page and "<script>alert" not in page


def test_an_uploaded_text_file_is_no_markdown(people):
    upload = SimpleUploadedFile("session notes.txt", b"\xef\xbb\xbf# not a heading\r\n\r\nsecond\r\n")
    people.client("alice").post(NEW, {"team": str(people.alice.personal_team_id), "kind": "markdown", "file": upload})
    kept = Document.objects.get()
    assert (kept.title, kept.kind, kept.text) == ("session notes", "text", "# not a heading\n\nsecond\n")
    assert [p.heading for p in kept.passages.all()] == [""]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"text": "  \n"}, "The text is missing"),
        ({"text": "x" * (512 * 1024 + 1)}, "at most 512 KiB"),
        ({"text": "a\x00b"}, "null characters are not allowed"),
        ({"file": ("a.pdf", b"%PDF")}, "a.pdf is not one of .md"),
        ({"file": ("a.md", b"\xff\xfe\x00")}, "a.md is not UTF-8 text (byte 1)"),
        ({"file": ("a.md", b"x" * (512 * 1024 + 1))}, "a.md has 512 KiB"),
        ({"file": ("a.md", b"")}, "The text is missing"),
        ({"file": ("a.md", b"text"), "text": "another"}, "remove one of them"),
    ],
)
def test_what_cannot_be_kept_is_refused_with_the_reason(people, given, said):
    data = {"team": str(people.alice.personal_team_id), "kind": "markdown", **given}
    if "file" in data:
        data["file"] = SimpleUploadedFile(*data["file"])
    answer = people.client("alice").post(NEW, data)
    assert answer.status_code == 422 and said.casefold() in answer.content.decode().casefold()
    assert not Document.objects.exists()


def test_search_finds_by_stems_and_marks_what_it_found(people, notes):
    page = found(people, "alice", "conflicting banks")
    assert "<mark>bank</mark>" in page.casefold() and f"{notes.pk}/#p0" in page
    assert "<mark>" not in found(people, "alice", "nonsense"), "nothing is marked where nothing is found"
    assert "No passage matches" in found(people, "alice", "nonsense")


def test_where_no_passage_has_all_words_those_with_some_are_shown(people, notes):
    page = found(people, "alice", "bank conflicts in quantum computers")
    assert "Partial matches" in page and f"{notes.pk}/#p0" in page


@pytest.mark.parametrize("query", ["'; DROP TABLE knowledge_passage; --", '"unbalanced', "& | ! ( ) :*", "-graph", "%", "\\", "x" * 400])
def test_no_query_breaks_the_page(people, notes, query):
    assert people.client("alice").get(LIST, {"q": query}).status_code == 200
    assert Passage.objects.exists()


def test_text_of_a_document_is_never_markup(people):
    save(team=people.alice.personal_team, user=people.alice, title="<b>t</b>", kind="text", text="danger <img src=x onerror=alert(1)> here")
    page = found(people, "alice", "danger")
    assert "<img src=x" not in page and "<mark>danger</mark>" in page and "&lt;b&gt;t" in page


def test_a_changed_document_is_found_by_its_new_words_only(people, notes):
    edit = reverse("knowledge:edit_document", args=[notes.pk])
    client = people.client("bob")
    assert "Bank conflicts" in client.get(edit).content.decode()
    client.post(edit, {"title": "Changed", "kind": "markdown", "text": "warp specialisation", "team": str(notes.team_id)})
    notes.refresh_from_db()
    assert notes.title == "Changed" and notes.changed_by == people.bob and notes.created_by == people.alice
    assert f"{notes.pk}/#p0" in found(people, "alice", "specialisation")
    assert "No passage matches" in found(people, "alice", "conflicts")


def test_only_the_team_sees_and_only_its_members_change(people, notes):
    page, edit, delete = (reverse(f"knowledge:{name}", args=[notes.pk]) for name in ("document", "edit_document", "delete_document"))
    charlie = people.client("charlie")
    assert [charlie.get(url).status_code for url in (page, edit)] == [404, 404] and charlie.post(delete).status_code == 404
    assert "Notes on the H200" not in charlie.get(LIST).content.decode() and "No passage" in found(people, "charlie", "bank")
    Membership.objects.filter(user=people.bob, team=notes.team).update(role=Membership.VIEWER)
    bob = people.client("bob")
    assert "Delete" not in bob.get(page).content.decode() and bob.get(edit).status_code == 403 and bob.post(delete).status_code == 403
    assert people.client("alice").post(delete, follow=True).status_code == 200 and not Passage.objects.exists()


def test_the_engines_library_answers_any_word_and_says_what_to_cite(people, notes):
    save(team=people.charlie.personal_team, user=people.charlie, title="Theirs", kind="text", text="bank bank bank")
    passages = TeamLibrary(people.alice.personal_team_id)._search("the kernel shows bank conflicts in shared memory", 3)
    assert [(p.id, p.title) for p in passages][:1] == [(f"{notes.pk}/0", "Notes on the H200: Bank conflicts")]
    assert all(p.id.startswith(str(notes.pk)) for p in passages)
    assert "Pad the row to 33" in passages[0].text
    assert TeamLibrary(people.alice.personal_team_id)._search("", 3) == [] == search([people.alice.personal_team_id], any_of("of the"), 3)


@pytest.mark.django_db(transaction=True)
def test_the_library_is_asked_from_the_engines_loop():
    from tests.unit.webapp.people import People

    people = People.make()
    save(team=people.alice.personal_team, user=people.alice, title="One", kind="text", text="padding")
    assert [p.title for p in asyncio.run(TeamLibrary(people.alice.personal_team_id).search("padding", 2))] == ["One"]
