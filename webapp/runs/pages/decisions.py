"""Prepares a run's decision tree for its page as a nested tree, with the beliefs before and after each attempt."""

from __future__ import annotations

from dataclasses import dataclass

from agents.choices.workflows import WORKFLOWS
from agents.decisions.view import marks_of
from agents.payloads import TreeChanged, TreeNode
from webapp.runs.models import Run
from webapp.ui.tags import whisker_scale

SIGNS = {"open": ("info", "○", "open"), "done": ("ok", "✓", "done"), "given up": ("idle", "✕", "given up")}


@dataclass(frozen=True)
class Branch:
    """A node with its subtree. `chosen` marks the node that is being tried or was tried last."""

    node: TreeNode
    children: tuple[Branch, ...]
    chosen: bool

    @property
    def tone(self) -> str:
        return SIGNS.get(self.node.state, SIGNS["open"])[0]

    @property
    def sign(self) -> str:
        return SIGNS.get(self.node.state, SIGNS["open"])[1]

    @property
    def word(self) -> str:
        return SIGNS.get(self.node.state, SIGNS["open"])[2]


@dataclass(frozen=True)
class Decisions:
    """A decision tree for display.

    `seq` is the event that holds the tree. `scale` is the scale shared by all beliefs. `marks` is a sentence about the accuracy of the predictions.
    """

    seq: int = 0
    tree: TreeChanged = TreeChanged()
    roots: tuple[Branch, ...] = ()
    scale: tuple[float, float] = (0.5, 2.0)
    marks: str = ""

    @property
    def open(self) -> int:
        return sum(node.state == "open" for node in self.tree.nodes)


def decisions_of(run: Run) -> Decisions | None:
    """Return the tree from the run's last tree event.

    The tree is empty if there is no such event yet. The result is None if the run's workflow keeps no tree.
    """
    workflow = WORKFLOWS.get(run.workflow)
    row = run.events.filter(kind=TreeChanged.kind).order_by("-seq").first()
    if row is None:
        return Decisions() if workflow is not None and workflow.tree else None
    tree = row.body
    assert isinstance(tree, TreeChanged)
    beliefs = [found for node in tree.nodes for found in (node.belief, node.before, node.predicted) if found is not None]
    marks = marks_of(tree.marks).said if tree.marks is not None else ""
    return Decisions(row.seq, tree, _nested(tree), whisker_scale(beliefs), marks)


def _nested(tree: TreeChanged) -> tuple[Branch, ...]:
    """Return the roots with their subtrees. A node becomes a root if its parent did not fit into the event."""
    below: dict[str | None, list[TreeNode]] = {}
    known = {node.id for node in tree.nodes}
    for node in tree.nodes:
        below.setdefault(node.parent if node.parent in known else None, []).append(node)

    def branches(parent: str | None) -> tuple[Branch, ...]:
        return tuple(Branch(node, branches(node.id), node.id == tree.node) for node in below.get(parent, ()))

    return branches(None)
