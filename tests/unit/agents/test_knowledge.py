from __future__ import annotations

import asyncio

import pytest

from agents.knowledge import PASSAGE_CHARACTERS, FolderLibrary, cited_as, pieces, title_of, words

NOTES = """# Notes

A word before.

## Tiles

Pad rows of shared memory.

```python
# not a heading
x = 1
```

### CUDA

A row of 33 words.

## Launches

Capture a graph.
"""


def test_passages_keep_the_headings_above_them():
    found = [(piece.heading, piece.text.split("\n")[0]) for piece in pieces(NOTES)]
    assert found == [
        ("Notes", "A word before."), ("Tiles", "Pad rows of shared memory."), ("Tiles: CUDA", "A row of 33 words."), ("Launches", "Capture a graph."),
    ]  # fmt: skip
    assert title_of(NOTES) == "Notes" and title_of("no heading") == ""
    assert "# not a heading" in list(pieces(NOTES))[1].text


def test_with_several_first_headings_none_is_the_documents():
    assert [piece.heading for piece in pieces("# One\n## a\nx\n# Two\n## a\ny\n")] == ["One: a", "Two: a"]


def test_a_plain_text_has_no_headings():
    assert [(p.heading, p.text) for p in pieces("# 1 a comment\r\n\r\nnext", headings=False)] == [("", "# 1 a comment\n\nnext")]


@pytest.mark.parametrize("text", ["word " * 2000, "x" * 5000, "\n".join(["a line of some length"] * 500), "para\n\n" * 900])
def test_no_passage_is_too_long_and_nothing_is_lost(text):
    cut = list(pieces(text))
    assert max(len(piece.text) for piece in cut) <= PASSAGE_CHARACTERS
    assert "".join("".join(piece.text for piece in cut).split()) == "".join(text.split())


@pytest.mark.parametrize("text", ["", "\n\n", "## \n", "```\n# never closed"])
def test_texts_without_much_in_them(text):
    assert len(list(pieces(text))) <= 1


def test_words_are_found_by_their_parts_and_plurals():
    assert words("The tiles of cp_async_wait") == ["tile", "cp_async_wait", "cp", "async", "wait"]


def test_a_folder_is_searched_and_says_what_to_cite(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "notes.md").write_text(NOTES)
    (tmp_path / "plain.txt").write_text("# launches\n\nGraphs of launches, launches and launches.")
    (tmp_path / "broken.md").write_bytes(b"\xff\xfe")
    (tmp_path / "image.png").write_bytes(b"\x89PNG")
    library = FolderLibrary(tmp_path)
    found = asyncio.run(library.search("how do I pad a tile in shared memory?", 3))
    assert (found[0].id, found[0].title) == ("sub/notes.md#1", "Notes: Tiles")
    launches = asyncio.run(library.search("launches", 5))
    assert [p.id for p in launches] == ["plain.txt#0", "sub/notes.md#3"]
    assert asyncio.run(library.search("of the and", 3)) == [] == asyncio.run(library.search("quantum", 3))
    assert library.problems == ["broken.md is left out: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"]


def test_an_empty_folder_answers_nothing(tmp_path):
    assert asyncio.run(FolderLibrary(tmp_path / "absent").search("anything", 3)) == []


def test_a_citation_names_document_and_heading_once():
    assert cited_as("Notes", "Notes") == "Notes" == cited_as("Notes", "") and cited_as("Notes", "Tiles") == "Notes: Tiles"
