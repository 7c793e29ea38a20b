"""The scripts that a model uses to edit the tree, and their validation. An operation that breaks a rule is left out with an explanation, and the rest
of the script is kept.

The rest is kept because a script costs a model call, its operations are mostly independent, and a single mistake should not discard good ideas.
Operations that depend on an omitted one are left out too. A script for a different revision is rejected entirely, because it refers to a different
tree.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PrivateAttr, TypeAdapter, ValidationError

from agents.decisions.tree import MOST_TRIES, ROOT, Node, Tree
from agents.roles.replies import Long, Names, Strict, Title, UnusableReply, said

MOST_NEW = 6  # new nodes per script
MOST_OPEN = 12  # open nodes in the tree
MOST_PARTS = 4  # maximum number of parts of a split
MOST_OPERATIONS = 24
LIMITS = (
    f"A script has at most {MOST_OPERATIONS} operations and adds at most {MOST_NEW} nodes; a split has at most {MOST_PARTS} steps; "
    f"a tree has at most {MOST_OPEN} open nodes, and a node at most {MOST_TRIES} attempts, repairs included."
)
ROOM = {"title": 200, "text": 6000}  # in characters; longer text is truncated, with a note


class Stated(Strict):
    """The text of a node."""

    title: Title
    text: Annotated[Long, Field(min_length=1)]
    strategies: Names = []
    expected: float | None = Field(default=None, gt=0, le=1000, allow_inf_nan=False)
    _data: Any = PrivateAttr(default=None)

    def carrying(self, data: Any) -> Self:
        """Returns a copy with the author's internal representation. Used only by authors other than models, whose scripts are not read from JSON."""
        self._data = data
        return self


class Add(Stated):
    """Adds an open node under `parent`, which is an existing node or an `id` assigned by another `add` in the script."""

    op: Literal["add"]
    id: Annotated[str, Field(max_length=40)] = ""
    parent: str


class Refine(Stated):
    """Rewrites an open node and moves it under `parent` if one is given."""

    op: Literal["refine"]
    node: str
    parent: str | None = None


class Split(Strict):
    """Turns an open node into a chain: the first step takes its place, and each further step becomes a child of the previous one."""

    op: Literal["split"]
    node: str
    into: Annotated[list[Stated], Field(min_length=2, max_length=MOST_PARTS)]


class Drop(Strict):
    """Removes an open node and all nodes that are waiting under it."""

    op: Literal["drop"]
    node: str
    reason: Title


Operation = Annotated[Add | Refine | Split | Drop, Field(discriminator="op")]
_OPERATION: TypeAdapter[Add | Refine | Split | Drop] = TypeAdapter(Operation)


class ScriptReply(Strict):
    """The whole reply. Operations are parsed separately, so each is either an `Operation` or JSON that has not been parsed yet."""

    revision: int
    ops: list[Any]


@dataclass
class Edited:
    """The tree after the script. `kept`: the operations that were carried out. `left_out`: one sentence for each operation that was skipped or
    changed."""

    tree: Tree
    kept: int = 0
    new: list[str] = field(default_factory=list)  # ids of nodes that were added or rewritten
    left_out: list[str] = field(default_factory=list)


class _Waits(Exception):
    """Raised if the operation needs a node that another operation of the script has not added yet."""


def edited(tree: Tree, script: ScriptReply, catalogue: Collection[str]) -> Edited:
    """Runs a script on a copy of the tree. Raises `UnusableReply` if the script was written for another tree."""
    if script.revision != tree.revision:
        raise UnusableReply(f"- revision: the script is about revision {script.revision} of the tree, which is at {tree.revision} now.")
    work = _Work(Edited(tree.copy()), catalogue)
    if len(script.ops) > MOST_OPERATIONS:
        work.found.left_out.append(f"ops[{MOST_OPERATIONS}:]: a script has at most {MOST_OPERATIONS} operations, this one {len(script.ops)}.")
    pending = [(at, op) for at, raw in enumerate(script.ops[:MOST_OPERATIONS]) if (op := work.read(at, raw)) is not None]
    work.named = {op.id for _, op in pending if isinstance(op, Add) and op.id}
    while pending:
        waiting = [(at, op) for at, op in pending if not work.carried_out(at, op)]
        if len(waiting) == len(pending):
            work.stuck(waiting)
            break
        pending = waiting
    if work.found.kept:
        work.found.tree.revision += 1
    return work.found


def usable(found: Edited) -> Edited:
    """Returns its argument. If the script had operations but none could be carried out, raises `UnusableReply` with all explanations, so that its
    author can fix it."""
    if found.left_out and not found.kept:
        raise UnusableReply("\n".join(f"- {sentence}" for sentence in found.left_out))
    return found


class _Work:
    """A script that is being applied to a tree."""

    def __init__(self, found: Edited, catalogue: Collection[str]):
        self.found, self.tree, self.catalogue = found, found.tree, catalogue
        self.named: set[str] = set()  # ids assigned by the script's `add` operations
        self.ids: dict[str, str] = {}  # assigned ids whose nodes are already in the tree
        self.added = 0

    def read(self, at: int, raw: Any) -> Add | Refine | Split | Drop | None:
        """Returns the operation. If it is malformed, records an explanation and returns None."""
        try:
            operation = _OPERATION.validate_python(raw)
        except ValidationError as error:
            self.found.left_out.append(f"ops[{at}]: {said(error).removeprefix('- ')}")
            return None
        for stated in (raw, *(raw.get("into") or ())) if isinstance(raw, dict) else ():
            for name, room in ROOM.items():
                if isinstance(stated.get(name), str) and len(stated[name].strip()) > room:
                    self.found.left_out.append(f"ops[{at}]: {name} has room for {room:,} characters and was cut.")
        return operation

    def carried_out(self, at: int, operation: Add | Refine | Split | Drop) -> bool:
        """Returns whether the operation is finished, that is, carried out or left out. Returns False if it has to wait for another operation."""
        try:
            match operation:
                case Add():
                    self.add(at, operation)
                case Refine():
                    self.refine(at, operation)
                case Split():
                    self.split(at, operation)
                case Drop():
                    self.drop(operation)
        except _Waits:
            return False
        except UnusableReply as refused:
            self.found.left_out.append(f"ops[{at}] ({operation.op}): {refused}")
            return True
        self.found.kept += 1
        return True

    def stuck(self, waiting: Sequence[tuple[int, Add | Refine | Split | Drop]]) -> None:
        """Reports operations that need nodes that were never added, because the operations depend on each other in a cycle or on one that was left
        out."""
        above = {op.id: op.parent for _, op in waiting if isinstance(op, Add) and op.id}
        for at, operation in waiting:
            place = getattr(operation, "parent", None) or getattr(operation, "node", "")
            seen: set[str] = set()
            while place in above and place not in seen:
                seen.add(place)
                place = above[place]
            why = "descends from itself through a cycle of parents" if place in seen else f"descends from {place!r}, which was left out"
            self.found.left_out.append(f"ops[{at}] ({operation.op}): it {why}.")

    # the four operations

    def add(self, at: int, operation: Add) -> None:
        if operation.id in self.tree.nodes or operation.id in self.ids:
            raise UnusableReply(f"there is already a node {operation.id!r}: leave `id` out, or take another name.")
        parent = self.place(operation.parent)
        self.room(1)
        node = self.new(at, parent, operation)
        if operation.id:
            self.ids[operation.id] = node.id

    def refine(self, at: int, operation: Refine) -> None:
        node = self.open_node(operation.node)
        parent = self.place(operation.parent) if operation.parent is not None else node.parent
        if parent == node.id or any(below.id == parent for below in self.tree.below(node.id)):
            raise UnusableReply(f"{node.id} would become its own descendant.")
        self.unknown_yet(operation, parent, node.id)
        node.parent = parent
        self.state(at, node, operation)

    def split(self, at: int, operation: Split) -> None:
        node = self.open_node(operation.node)
        self.room(len(operation.into) - 1)
        first, *further = operation.into
        waiting = self.tree.children(node.id)
        self.state(at, node, first)
        last = node
        for step in further:
            last = self.new(at, last.id, step)
        for child in waiting:
            child.parent = last.id

    def drop(self, operation: Drop) -> None:
        node = self.open_node(operation.node)
        for gone in (node, *self.tree.below(node.id)):
            self.tree.nodes.pop(gone.id)
            if gone.id in self.found.new:
                self.found.new.remove(gone.id)

    # their rules

    def place(self, name: str) -> str:
        """Returns the id of a node that may have children."""
        node = self.tree.nodes.get(self.ids.get(name, name))
        if node is None:
            if name in self.named and name not in self.ids:
                raise _Waits
            raise UnusableReply(f"there is no node {name!r}; there are {', '.join(self.tree.nodes)}.")
        if node.state == "given up":
            raise UnusableReply(f"{node.id} was given up, so nothing can be built on it.")
        return node.id

    def open_node(self, name: str) -> Node:
        node = self.tree.nodes[self.place(name)]
        if node.id == ROOT or node.state != "open":
            raise UnusableReply(f"{node.id} has a program, and what was measured stays: only open nodes change.")
        return node

    def room(self, count: int) -> None:
        if self.added + count > MOST_NEW:
            raise UnusableReply(f"a script adds at most {MOST_NEW} nodes.")
        if len(self.tree.open) + count > MOST_OPEN:
            raise UnusableReply(f"a tree has at most {MOST_OPEN} open nodes: drop one first.")

    def unknown_yet(self, stated: Stated, parent: str | None, but: str = "") -> None:
        alike = next((n for n in self.tree.children(parent or ROOT) if n.id != but and n.title.casefold() == stated.title.casefold()), None)
        if alike is not None:
            raise UnusableReply(f"this is {alike.id} again, which is {alike.state}.")

    def new(self, at: int, parent: str, stated: Stated) -> Node:
        self.unknown_yet(stated, parent)
        node = Node(self.tree.new_id(), parent, stated.title)
        self.added += 1
        self.tree.nodes[node.id] = node
        self.state(at, node, stated)
        return node

    def state(self, at: int, node: Node, stated: Stated) -> None:
        unknown = [name for name in stated.strategies if name not in self.catalogue]
        if unknown:
            self.found.left_out.append(f"ops[{at}]: not in the catalogue, and left out: {', '.join(unknown[:6])}.")
        node.title, node.text, node.promise, node.data = stated.title, stated.text, stated.expected, stated._data
        node.strategies = tuple(name for name in stated.strategies if name in self.catalogue)
        if node.id not in self.found.new:
            self.found.new.append(node.id)
