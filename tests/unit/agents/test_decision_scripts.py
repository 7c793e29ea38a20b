"""Scripts that edit a decision tree: each rule has its own message, the valid remainder is kept, and measurements never change."""

from __future__ import annotations

import random

import pytest

from agents.decisions.script import MOST_NEW, MOST_OPEN, MOST_OPERATIONS, ROOM, ScriptReply, edited, usable
from agents.decisions.tree import MOST_TRIES, ROOT, Tree
from agents.roles.replies import UnusableReply

CATALOGUE = ("vectorise", "row-cache", "cuda-graph")


def said(title: str, **more) -> dict:
    return {"title": title, "text": f"do {title}", "strategies": ["vectorise"], "expected": 1.2, **more}


def add(title: str, parent: str = ROOT, **more) -> dict:
    return {"op": "add", "parent": parent, **said(title, **more)}


def run(tree: Tree, *ops, revision: int | None = None):
    return edited(tree, ScriptReply(revision=tree.revision if revision is None else revision, ops=list(ops)), CATALOGUE)


@pytest.fixture
def tree() -> Tree:
    """Returns a tree in which n1 is done (candidate 1), n2 is open below it, n3 is open below n2, and n4 was given up."""
    tree = run(Tree(), add("one", id="a"), add("two", "a", id="b"), add("three", "b"), add("four")).tree
    tree.settled(tree.nodes["n1"], 1)
    for _ in range(MOST_TRIES):
        tree.tried_in_vain(tree.nodes["n4"], 2, "it crashed")
    assert [tree.nodes[name].state for name in ("n1", "n2", "n3", "n4")] == ["done", "open", "open", "given up"]
    return tree


def parents(tree: Tree) -> dict[str, str | None]:
    return {node.id: node.parent for node in tree.nodes.values()}


def test_nodes_of_a_script_may_hang_on_each_other_in_any_order():
    found = run(Tree(), add("leaf", "stem", id="leaf"), add("stem", "root of it", id="stem"), add("whole", id="root of it"))
    assert found.kept == 3 and found.left_out == [] and found.tree.revision == 1
    assert [node.title for _, node in found.tree.depth_first()] == ["The task's own model", "whole", "stem", "leaf"]
    assert [node.title for node in found.tree.frontier] == ["whole"], "what hangs below an open node waits"


def test_the_four_operations(tree):
    split = {"op": "split", "node": "n2", "into": [said("first"), said("then", strategies=["row-cache"])]}
    found = run(
        tree,
        split,
        {"op": "refine", "node": "n3", "parent": "n1", **said("elsewhere")},
        add("new", "n1"),
        {"op": "drop", "node": "n3", "reason": "no"},
    )
    assert found.left_out == [] and found.kept == 4 and found.tree.revision == tree.revision + 1
    assert parents(found.tree) == {"n0": None, "n1": "n0", "n2": "n1", "n4": "n0", "n5": "n2", "n6": "n1"}
    assert found.tree.nodes["n2"].title == "first" and found.new == ["n2", "n5", "n6"]
    assert tree.nodes["n2"].title == "two", "the tree of before is as it was"


def test_what_waits_below_a_split_node_hangs_on_its_last_step(tree):
    found = run(tree, {"op": "split", "node": "n2", "into": [said("a"), said("b"), said("c")]})
    assert parents(found.tree)["n3"] == "n6" and parents(found.tree)["n6"] == "n5" and parents(found.tree)["n5"] == "n2"


@pytest.mark.parametrize(
    ("op", "sentence"),
    [
        (add("x", "n77"), "there is no node 'n77'"),
        (add("x", "n4"), "n4 was given up"),
        (add("three", "n2"), "this is n3 again, which is open"),
        (add("x", id="n2"), "there is already a node 'n2'"),
        ({"op": "refine", "node": "n1", **said("x")}, "n1 has a program, and what was measured stays"),
        ({"op": "refine", "node": "n2", "parent": "n3", **said("x")}, "n2 would become its own descendant"),
        ({"op": "refine", "node": "n2", "parent": "n2", **said("x")}, "n2 would become its own descendant"),
        ({"op": "drop", "node": "n4", "reason": "x"}, "n4 was given up"),
        ({"op": "drop", "node": ROOT, "reason": "x"}, "only open nodes change"),
        ({"op": "drop", "node": "n2"}, "reason"),
        ({"op": "split", "node": "n2", "into": [said("alone")]}, "into"),
        ({"op": "split", "node": "n2", "into": "soon"}, "into"),
        ({"op": "choose", "node": "n2"}, "op"),
        (add("x", expected=float("nan")), "expected"),
        (add("x", score=0.9), "score"),
        (add("x", text=""), "text"),
        (add("x", data={"0": 1}), "data"),
        ("drop n2", "the object"),
        (None, "the object"),
    ],
)
def test_each_rule_has_its_sentence_and_the_rest_is_kept(tree, op, sentence):
    found = run(tree, add("before", "n1"), op, add("after", "n1"))
    assert found.kept == 2 and len(found.left_out) == 1, found.left_out
    assert found.left_out[0].startswith("ops[1]") and sentence in found.left_out[0]
    with pytest.raises(UnusableReply, match=r"^- ops\[0\]"):
        usable(run(tree, op))


def test_circles_within_a_script_and_what_hangs_on_what_was_left_out():
    found = run(Tree(), add("a", "b", id="a"), add("b", "a", id="b"), add("c", "a"), add("d", "gone", id="d"), add("e", "d"), add("f"))
    assert [node.title for node in found.tree.open] == ["f"]
    told = "\n".join(found.left_out)
    assert (
        told.count("descends from itself through a cycle of parents") == 3
        and "there is no node 'gone'" in told
        and "descends from 'd', which was left out" in told
    )


def test_too_many_and_too_long():
    found = run(Tree(), *(add(f"node {n}") for n in range(MOST_NEW + 2)))
    assert len(found.tree.open) == MOST_NEW and all("at most" in sentence for sentence in found.left_out) and len(found.left_out) == 2
    more = run(found.tree, *(add(f"more {n}") for n in range(MOST_NEW)), add("too many"))
    assert len(more.tree.open) == MOST_OPEN
    assert "drop one first" in run(more.tree, add("x")).left_out[0]
    assert run(more.tree, {"op": "drop", "node": "n1", "reason": "room"}, add("x")).left_out == []
    drops = [{"op": "drop", "node": "n1", "reason": "no"}] * (MOST_OPERATIONS + 5)
    assert any(f"at most {MOST_OPERATIONS} operations" in sentence for sentence in run(more.tree, *drops).left_out)
    long = run(Tree(), add("t" * (ROOM["title"] + 1), text="x" * (ROOM["text"] + 1)))
    assert long.kept == 1 and [("title" in s, "text" in s) for s in long.left_out] == [(True, False), (False, True)]
    (node,) = long.tree.open
    assert len(node.title) == ROOM["title"] and len(node.text) == ROOM["text"] and node.text.endswith("room for 6,000]")


def test_a_script_about_another_tree_is_refused_whole(tree):
    with pytest.raises(UnusableReply, match="revision 1 of the tree, which is at"):
        run(tree, add("x"), revision=1)


def test_unknown_strategies_are_left_out_and_their_node_stays():
    found = run(Tree(), add("x", strategies=["vectorise", "magic"]))
    assert (
        found.kept == 1 and found.tree.nodes["n1"].strategies == ("vectorise",) and "not in the catalogue, and left out: magic" in found.left_out[0]
    )
    assert usable(found) is found


def test_an_empty_script_changes_nothing(tree):
    found = usable(run(tree))
    assert found.kept == 0 and found.tree.revision == tree.revision


def test_any_scripts_leave_a_tree_that_holds_together():
    """Applies random operations, most of them nonsense: every node's parent exists, nodes below open ones are open, and closed ones stay closed."""
    draw = random.Random(7)
    tree = Tree()
    for step in range(150):
        names = [*tree.nodes, "n99", "a", "b"]
        ops = []
        for _ in range(draw.randint(0, 8)):
            kind, title = draw.choice(["add", "refine", "split", "drop"]), f"t{draw.randint(0, 30)}"
            match kind:
                case "add":
                    ops.append(add(title, draw.choice(names), id=draw.choice(["", "a", "b"])))
                case "refine":
                    ops.append({"op": kind, "node": draw.choice(names), "parent": draw.choice([None, *names]), **said(title)})
                case "split":
                    ops.append({"op": kind, "node": draw.choice(names), "into": [said(f"{title} {n}") for n in range(2)]})
                case "drop":
                    ops.append({"op": kind, "node": draw.choice(names), "reason": "so"})
        closed = {node.id: (node.state, node.title, node.candidate) for node in tree.nodes.values() if node.state != "open"}
        tree = run(tree, *ops).tree
        for node in tree.nodes.values():
            assert node.id == ROOT or node.parent in tree.nodes
            assert node.state != "done" or node.id == ROOT or tree.nodes[node.parent].state == "done"
            assert node.state != "open" or tree.nodes[node.parent].state in ("open", "done")
        assert len(list(tree.depth_first())) == len(tree.nodes), "every node descends from the root"
        assert len(tree.open) <= MOST_OPEN and closed.items() <= {n.id: (n.state, n.title, n.candidate) for n in tree.nodes.values()}.items()
        if tree.frontier:
            node = draw.choice(tree.frontier)
            if draw.random() < 0.5:
                tree.settled(node, step)
                tree.carry_over(node)
            else:
                tree.tried_in_vain(node, step, "wrong")


def test_what_waits_beside_a_node_that_gained_is_done_on_top_of_it():
    tree = run(Tree(), add("whole", id="w"), add("wide", "w"), add("graph", "w", strategies=["cuda-graph"]), add("wider", "w"), add("other way")).tree
    tree.settled(tree.nodes["n1"], 1)
    assert tree.carry_over(tree.nodes["n1"]) == [], "whole programs are alternatives"
    tree.settled(tree.nodes["n2"], 2)
    assert [node.id for node in tree.carry_over(tree.nodes["n2"])] == ["n3"], "the same strategy is another way to the same end"
    assert parents(tree) == {"n0": None, "n1": "n0", "n2": "n1", "n3": "n2", "n4": "n1", "n5": "n0"}


def test_what_waits_below_a_node_that_is_given_up_moves_up():
    tree = run(Tree(), add("whole", id="w"), add("step", "w")).tree
    for number in range(MOST_TRIES):
        assert tree.nodes["n1"].state == "open" and tree.frontier == [tree.nodes["n1"]]
        tree.tried_in_vain(tree.nodes["n1"], number, "no")
    assert tree.nodes["n1"].state == "given up" and [node.id for node in tree.frontier] == ["n2"]
