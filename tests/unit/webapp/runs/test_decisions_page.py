"""The decision tree on a run's page: nested lists from the server, refreshed for a page with an older tree, and no tree if none is kept."""

from __future__ import annotations

import re

import pytest
from django.urls import reverse

from agents.decisions.belief import Posterior, Prediction, Track
from agents.decisions.script import ScriptReply, edited
from agents.decisions.tree import Tree
from agents.decisions.view import Program, View, changed, interval
from agents.events import NewEvent
from tests.unit.webapp.cast import make_run
from webapp.runs.trace.append import append

HOSTILE = "<script>alert(1)</script>"


def grown() -> Tree:
    ops = [
        {"op": "add", "parent": "n0", "id": "a", "title": HOSTILE, "text": "x", "strategies": ["vectorise"], "expected": 1.5},
        {"op": "add", "parent": "a", "title": "A graph", "text": "x", "strategies": ["cuda-graph"], "expected": 1.2},
    ]
    return edited(Tree(), ScriptReply(revision=0, ops=ops), ("vectorise", "cuda-graph")).tree


def told(tree: Tree):
    """Appends an attempt at n1 with a gain, as the workflow would record it."""
    before = {node.id: Posterior({}).of(node.strategies, node.promise) for node in tree.open}
    tree.nodes["n1"].predicted = before["n1"]
    tree.settled(tree.nodes["n1"], 1)
    after = {"n2": Posterior({}).of(["cuda-graph"], 1.1)}
    track = Track([Prediction(before["n1"], 1.5, 1.4)])
    view = View(tree, after, {"n1": Program(1.4, 1.4)}, "n1", marks=track.marks)
    return changed(view, "learned", "n1: candidate 1 gained 1.40x", node="n1", before=before).having(predicted=interval(before["n1"]), came=1.4)


@pytest.fixture
def shown(user, client):
    run = make_run(user, workflow="worldmodel")
    client.force_login(user)

    def page(name: str = "run") -> str:
        return client.get(reverse(f"runs:{name}", args=[run.pk])).content.decode()

    return run, page


def test_the_page_says_that_a_tree_will_come(shown):
    _, page = shown
    text = page()
    assert 'data-part="decisions"' in text and "after the planner’s first script" in text


def test_the_tree_is_nested_lists_with_beliefs_before_and_after(shown):
    run, page = shown
    append(run.pk, [NewEvent.of(told(grown()), span="attempt-1", agent="engine")])
    for text in (page(), page("decisions")):
        assert HOSTILE not in text and "&lt;script&gt;" in text
        tree = text.partition('class="decision-tree"')[2].partition("</details>")[0]
        assert tree.count("<ul") == tree.count("</ul>") - 1 == 2 and tree.count("<li ") == 3, "each node within its parent"
        first = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", tree))
        assert "candidate 1 1.40× over eager 1.40× over the program above" in first
        assert re.search(r"predicted 1.50× \[\d", first) and re.search(r"before 1.20× .* after 1.10× \[", first) and "last tried" in first
        assert f"{reverse('runs:run', args=[run.pk])}#candidate=1" in tree and 'tabindex="0"' in text
        assert "1 of 1 gains fell into the interval predicted" in text and "n1: candidate 1 gained 1.40x" in text
    assert 'data-seq="1"' in page("decisions")


def test_other_workflows_show_none_and_strangers_see_none(user, client, shown):
    run, _ = shown
    other = make_run(user, workflow="stitch")
    assert 'data-part="decisions"' not in client.get(reverse("runs:run", args=[other.pk])).content.decode()
    client.logout()
    assert client.get(reverse("runs:decisions", args=[run.pk])).status_code in (302, 403, 404)
