"""Renders the tree for the model that edits it, for events, and for a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from agents.decisions.belief import Belief, Marks
from agents.decisions.script import MOST_OPEN, Drop
from agents.decisions.tree import MOST_TRIES, ROOT, Node, Tree
from agents.events import MAX_PAYLOAD_BYTES
from agents.kinds import Part
from agents.payloads import TreeChanged, TreeMarks, TreeNode
from verifier.report import Interval

LONGEST_TITLE = 90  # in characters, for lists of many nodes
SPARE = 256  # bytes reserved in an event for the data that is added when the attempt ends
MOST_SENTENCES, LONGEST_SENTENCE, LONGEST_REASON = 6, 200, 1000


@dataclass(frozen=True)
class Program:
    """The measured figures of a node's program. `level`: speedup over eager, for comparison with other nodes. `gain`: speedup over the parent's
    program, or None if the two were not timed together."""

    level: float
    gain: float | None = None


@dataclass(frozen=True)
class View:
    """`beliefs`: the beliefs about open nodes. `programs`: the programs of finished nodes. `why`: the reason for editing the tree now."""

    tree: Tree
    beliefs: Mapping[str, Belief] = field(default_factory=dict)
    programs: Mapping[str, Program] = field(default_factory=dict)
    best: str = ROOT  # the node with the best program
    why: str = ""
    left_out: Sequence[str] = ()  # operations of the previous script that were left out
    marks: Marks = Marks()

    def value(self, node: Node) -> float:
        """Returns the speedup over eager that the node is expected to reach, starting from its parent or, if that has no program yet, from the
        parent's own expected value."""
        gain, parent = 1.0, node
        while parent.state == "open" and parent.parent is not None:
            gain *= self.beliefs[parent.id].gain
            parent = self.tree.nodes[parent.parent]
        return gain * self.programs.get(parent.id, Program(1.0)).level

    def room_for(self, count: int) -> list[Drop]:
        """Returns `Drop` operations for the least promising open nodes, enough to make room for `count` more."""
        spare = len(self.tree.open) + count - MOST_OPEN
        leaves = [node for node in self.tree.open if not self.tree.children(node.id)]
        worst = sorted(leaves, key=lambda node: (self.value(node), -node.number))[: max(spare, 0)]
        return [Drop(op="drop", node=node.id, reason="others are expected to reach more") for node in worst]


def interval(belief: Belief) -> Interval:
    return Interval(ratio=round(belief.gain, 4), low=round(belief.low, 4), high=round(belief.high, 4))


def short(title: str) -> str:
    return title if len(title) <= LONGEST_TITLE else f"{title[: LONGEST_TITLE - 1]}…"


def nodes_of(view: View, before: Mapping[str, Belief]) -> list[TreeNode]:
    return [_node(view, node, before.get(node.id)) for _, node in view.tree.depth_first()]


def _node(view: View, node: Node, before: Belief | None) -> TreeNode:
    program, belief = view.programs.get(node.id), view.beliefs.get(node.id)
    said = TreeNode(id=node.id, parent=node.parent, title=short(node.title), strategies=list(node.strategies)[:6], state=node.state)
    more: dict[str, object] = {"promise": node.promise, "tries": node.tries or None, "candidate": node.candidate}
    if program is not None:
        more |= {"level": round(program.level, 4), "gain": None if program.gain is None else round(program.gain, 4)}
    if belief is not None:
        more["belief"] = interval(belief)
    if node.predicted is not None:
        more["predicted"] = interval(node.predicted)
    if before is not None and belief is not None and before != belief:
        more["before"] = interval(before)
    return said.model_copy(update={name: value for name, value in more.items() if value is not None})


def fitting(nodes: Sequence[TreeNode], room: int) -> list[TreeNode]:
    """Returns as many nodes as fit. Closed leaves are dropped first, starting with the slowest, because nothing depends on them."""
    kept = list(nodes)
    size = {node.id: _bytes(node) for node in kept}
    while sum(size[node.id] for node in kept) > room:
        parents = {node.parent for node in kept}
        leaves = [node for node in kept[1:] if node.id not in parents]
        kept.remove(min(leaves, key=lambda node: (node.state == "open", node.level or 0.0)))
    return kept


def _bytes(part: Part) -> int:
    """Returns the size as the database counts it, including the trailing comma."""
    return len(json.dumps(part.model_dump(), ensure_ascii=False).encode()) + 2


def changed(view: View, what: str, reason: str, *, node: str = "", before: Mapping[str, Belief] | None = None) -> TreeChanged:
    """Returns the event that shows the tree. `before`: the beliefs before the attempt, for the "learned" entry."""
    given: dict[str, object] = {}
    if what == "edited" and view.left_out:
        given["left_out"] = [sentence[:LONGEST_SENTENCE] for sentence in view.left_out[:MOST_SENTENCES]]
    if view.marks.predictions:
        marks = view.marks
        off, promises = (None if factor is None else round(factor, 4) for factor in (marks.off, marks.promises_off))
        given["marks"] = TreeMarks(predictions=marks.predictions, within=marks.within, off=off, promises_off=promises)
    said = TreeChanged(what=what, revision=view.tree.revision, node=node, reason=reason[:LONGEST_REASON]).having(**given)
    nodes = nodes_of(view, before or {})
    kept = fitting(nodes, MAX_PAYLOAD_BYTES - _bytes(said) - SPARE)
    more = {"more": len(nodes) - len(kept)} if len(kept) < len(nodes) else {}
    return said.having(nodes=kept, **more)


# text output


def lines(p: TreeChanged) -> Iterator[str]:
    """Yields the tree from an event as a nested list, one line per node, followed by the accuracy of its predictions."""
    depth: dict[str | None, int] = {None: -1}
    for node in p.nodes:
        depth[node.id] = depth.get(node.parent, 0) + 1
        yield f"{'  ' * depth[node.id]}- {node.id}{'*' if node.id == p.node else ''} {node.title}: {said_of(node)}"
    if p.more:
        yield f"and {p.more} more that did not fit"
    if p.marks is not None:
        yield marks_of(p.marks).said


def marks_of(marks: TreeMarks) -> Marks:
    return Marks(marks.predictions, marks.within, marks.off, marks.promises_off)


def said_of(node: TreeNode) -> str:
    """Returns the state, figures and belief of a node in a few words."""
    if node.parent is None:
        return "1.00x"
    words = [node.state]
    if node.candidate is not None:
        words = [f"candidate {node.candidate}"]
        words += [f"{node.level:.2f}x over eager"] if node.level is not None else []
        words += [f"{node.gain:.2f}x over its parent"] if node.gain is not None else []
    if node.belief is not None:
        words.append(f"believed {spread(node.belief)}")
    if node.before is not None:
        words.append(f"before {spread(node.before)}")
    if node.predicted is not None and node.state == "done":
        words.append(f"predicted {spread(node.predicted)}")
    if node.promise is not None:
        words.append(f"promised {node.promise:.2f}x")
    if node.tries:
        words.append(f"failed {node.tries} of {MOST_TRIES} times")
    return ", ".join(words)


def spread(found: Interval) -> str:
    return f"{found.ratio:.2f}x [{found.low:.2f}, {found.high:.2f}]"


def tree_text(view: View) -> str:
    """Returns the tree for a prompt: every node with its figures and beliefs, open nodes with their text, and failed nodes with their findings."""
    told = []
    for depth, node in view.tree.depth_first():
        indent = "  " * depth
        mark = " (the best program)" if node.id == view.best and node.candidate is not None else ""
        told.append(f"{indent}- {node.id}: {node.title}: {said_of(_node(view, node, None))}{mark}")
        if node.strategies:
            told.append(f"{indent}  strategies: {', '.join(node.strategies)}")
        if node.state == "open":
            told.append(f"{indent}  {node.text[:1200]}")
        if node.diagnosis:
            told.append(f"{indent}  {'found' if node.state == 'done' else 'failed'}: {node.diagnosis[:600]}")
    return "\n".join(told)
