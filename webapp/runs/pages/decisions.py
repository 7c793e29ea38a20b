"""The tree of decisions of a run, as its page shows it: nested, with what was believed before and after each attempt."""

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
    """A node with what hangs below it. `chosen`: it is being tried, or was tried last."""

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
    """`seq`: of the event that shows the tree. `scale`: on which all beliefs are drawn. `marks`: how predictions came true, a sentence."""

    seq: int = 0
    tree: TreeChanged = TreeChanged()
    roots: tuple[Branch, ...] = ()
    scale: tuple[float, float] = (0.5, 2.0)
    marks: str = ""

    @property
    def open(self) -> int:
        return sum(node.state == "open" for node in self.tree.nodes)


def decisions_of(run: Run) -> Decisions | None:
    """As the run's last event of its tree has it; empty where there is none yet, null where the run's workflow keeps no tree."""
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
    """The roots, each with what hangs below it; a node whose parent did not fit the event is a root itself."""
    below: dict[str | None, list[TreeNode]] = {}
    known = {node.id for node in tree.nodes}
    for node in tree.nodes:
        below.setdefault(node.parent if node.parent in known else None, []).append(node)

    def branches(parent: str | None) -> tuple[Branch, ...]:
        return tuple(Branch(node, branches(node.id), node.id == tree.node) for node in below.get(parent, ()))

    return branches(None)
