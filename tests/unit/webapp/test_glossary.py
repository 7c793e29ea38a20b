"""The glossary: few terms, each linked where the pages use it, and open to everyone."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from django.urls import reverse

from webapp.environment import ROOT
from webapp.ui.glossary import TERMS, term

MOST_TERMS = 12
LINKED = re.compile(r"""\{% term "(\w+)"|\bterm\("(\w+)",""")


def linked() -> dict[str, list[str]]:
    """Returns the files that link each term."""
    found: dict[str, list[str]] = {}
    for path in [*(ROOT / "templates").rglob("*.html"), *(ROOT / "static").rglob("*.js")]:
        for pair in LINKED.findall(path.read_text()):
            found.setdefault("".join(pair), []).append(str(path.relative_to(ROOT)))
    return found


def test_there_are_few_terms_and_each_has_a_sentence():
    assert 0 < len(TERMS) <= MOST_TERMS
    for key, one in TERMS.items():
        assert re.fullmatch(r"\w+", key) and one.title and one.text.endswith("."), key


def test_each_term_is_linked_and_each_link_has_a_term():
    assert set(linked()) == set(TERMS)


@pytest.mark.parametrize("key", TERMS)
def test_a_link_leads_to_its_term(db, key: str):
    address, _, place = re.findall(r'href="([^"]+)"', term(key))[0].partition("#")
    page = Client().get(address).content.decode()
    assert page.count(f'id="{place}"') == 1
    assert page.count(f'id="help-{key}"') == 1  # in the help, which the link opens on a page with scripts


def test_other_words_are_escaped_and_an_unknown_term_is_an_error():
    assert ">programs &lt;b&gt;</a>" in term("candidate", "programs <b>")
    with pytest.raises(KeyError):
        term("no_such_term")


def test_the_help_of_every_page_has_all_terms(people):
    page = people.client("alice").get(reverse("runs:list")).content.decode()
    assert set(re.findall(r'id="help-(\w+)"', page)) == set(TERMS)
    assert f'data-glossary="{reverse("ui:glossary")}"' in page


def test_a_newcomer_is_told_the_steps_of_a_run(people):
    client = people.client("alice")
    page = client.get(reverse("runs:list")).content.decode()
    assert re.findall(r"<li><strong>([^<]+)</strong>", page) == ["Submit", "Watch", "Use it"]
    assert '<details class="panel next" open>' in client.get(reverse("tasks:submit")).content.decode()
