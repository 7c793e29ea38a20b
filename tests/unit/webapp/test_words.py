"""Texts on pages and in messages read like a native speaker's: they contain none of the phrases that readers had to read twice, and no similar
ones."""

from __future__ import annotations

import re
from functools import cache

import pytest

from tests.unit.webapp.texts import Text, everything

# A phrase, and its replacement.
REFUSED = {
    # As they appeared on the pages.
    r"catalogue allows|rules allow\b|left to write": "No applicable optimization left; stopped early.",
    r"told apart": "no significant difference",
    r"\bcame\b": "you signed in with; measured",
    r"\bSay how\b|for you to (read|edit)|what goes in": "Enter …; we'll …",
    r"(is|are|not) (yours|theirs) to see|is nothing here": "Page not found, or you don't have access.",
    r"wait until one is|in its place\b|measured elsewhere": "CUDA runs stay queued until a GPU connects.",
    r"bounds this score|instead of proving": "Under 1 ms, timing is only indicative.",
    r"\bis back\. |start afresh": "Draft restored / Discard",
    r"\blooks at\b|\bseen by\b": "is viewing; visible to",
    # Phrases of the same kind.
    r"\bof (which|whom)\b": "two sentences",
    r"\bIt is (what|who|where|that which)\b|^(It|This|That) is what\b": "say what it does",
    r"\b(anew|afresh|any more|thereof|wherein|whereby|therein|hereby)\b": "again; no longer",
    r"\bwhoever\b|\bsomebody\b": "who, anyone, someone",
    r"\b(is|are|was|were|be) (told|said)\b(?! (to|that)\b)": "name who reads it: you'll see, is shown",
    r"^(Of|With|By|Through) (each|all|every|the|these|this|its|some)\b[^,.]* (is|are|was|were|has|have|comes?|goes|lies)\b": "subject first",
    r"^Of\b": "subject first",
    r"\b([Tt]his|[Ii]t|body|cursor) is no (?!longer\b|more\b)": "isn't a",
    r"\bat work\b|\bstand(s|ing)? still\b|\bin force\b|\bsought\b": "running; waiting; working; searched for",
    r"\bwhomever\b|\bonly who\b|\b(be|are) learned from\b|\bno way to it\b": "anyone; the author; used for training; may not reach it",
    r"^None (is|has)\b|\bnobody (has|is)\b|until one is\b|where none is\b": "No … has; until one …s",
    r"\b(stands?|stood) (at|in|on|under|beside|here|above|below|still|behind)\b|\bas (it|they) stands?\b|\bstands here\b": "is, are",
    r"\bas (many|much|few) as one\b|\bare the most\b": "at most",
    r"\b(bears|begets|hearkens|holds for) no\b|\bthis task bears\b": "only works with",
    r"\bwhat is there\b|\bthose that there are\b|\bthere is no such thing\b": "name it",
    r"\bis of the type\b|\bbegin of\b|\bto the begin\b": "start of",
    r"\b(opened|made|written|drawn|read|put|ended) so\b": "that way; why",
    r"\bOne does not\b|\bone's\b": "you, your",
    r"(?<!\bthere )\bis no (valid|run|thread|address|id|number|text|rubric|exchange|program|Python)\b": "is not a",
    r"\bin vain\b|\bhung up on\b|\bbeyond all\b": "failed … times; is disconnected; out of range",
    r"\b(has|have) not (the|a|an|any)\b|\bmend\b|\bheard of\b": "lacks; correct; reported",
    r"\b(decided|computed) otherwise\b|\bspeaks? for\b|\bwould pay\b": "differently; suggests; worthwhile",
    r"\bbrought (no|nothing|less)\b|\bwas made from\b|\bput away\b": "yielded; was derived from; archived",
    r"\bgo(es)? before\b|\bas (it|they) comes?\b(?! into)|\bbut for\b": "takes precedence over; as it arrives; except for",
}


@cache
def texts() -> tuple[Text, ...]:
    return tuple(everything())


@pytest.mark.parametrize("phrase", REFUSED)
def test_no_text_has_the_phrase_or_its_kind(phrase: str):
    pattern = re.compile(phrase, re.IGNORECASE if phrase[0] != "^" else 0)
    found = [str(text) for text in texts() if pattern.search(text.text)]
    assert not found, f"write instead: {REFUSED[phrase]}\n" + "\n".join(found)


COUNTED = (
    "events?|kernels|launches|runs|calls|lines|entries|blocks|tasks|jobs|comments|candidates|characters|programs|seeds|steps|months|notes|results"
)


def test_numbers_agree_with_their_nouns():
    """`counted` says "1 run" and "2 runs" (webapp/ui/figures.py, static/js/lib/words.js); a fixed limit may stand before a plural."""
    pattern = re.compile(rf"(?<!at most )(?<!than )(?<!first )(?<! to )(?<!Submit )◦ (?:{COUNTED})\b(?! programs)")
    found = [str(text) for text in texts() if text.file.startswith(("templates/", "static/")) and pattern.search(text.text)]
    assert not found, "\n".join(found)


def test_all_kinds_of_texts_are_looked_at():
    files = {text.file.partition("/")[0] for text in texts()}
    said = " ".join(text.text for text in texts())
    assert files == {"templates", "static", "webapp", "agents", "stitchwork"} and len(texts()) > 5000
    for known in ("Page not found, or you don't have access", "Nothing was recorded in this range", "Wrong name or password.", "record it again"):
        assert known in said


@pytest.mark.parametrize(
    "sentence",
    [
        "Nothing is left that the catalogue allows.",
        "vs eager, not told apart from 1",
        "You came by a one-time link.",
        "There is nothing here, or it is not yours to see",
        "Runs for CUDA wait until one is.",
        "Seen by: whoever made the run",
        "3 runs, of which 2 failed",
        "It is what planners choose from.",
        "Of each task the fastest is taken.",
        "Of the search; measurements draw their own.",
        "This is no cursor",
        "3 runs stand still and wait for a person",
        "Only who wrote a comment may change it.",
        "softmax is no run: give its id",
        "tried in vain 2 of 3 times",
        "the database has not the tables of this version",
        "mend the file, then resume",
        "3 programs in a row brought no gain.",
        "Number of the candidate that it was made from.",
        "identical, but for white space",
    ],
)
def test_the_lint_refuses(sentence: str):
    assert any(re.search(phrase, sentence, re.IGNORECASE if phrase[0] != "^" else 0) for phrase in REFUSED)
