"""A decision tree. Open nodes are ideas, closed nodes have programs, and the children of a node are changes to its program.

The root is the task's original model. All children of an open node are open and wait until it has a program. Scripts change the tree
(`agents.decisions.script`), and so do results (`settled`, `give_up`). Each change creates a new revision, so a script can state which tree its author
has seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from agents.decisions.belief import Belief

ROOT = "n0"
MOST_TRIES = 3  # programs per node, including repairs

State = Literal["open", "done", "given up"]


@dataclass
class Node:
    id: str
    parent: str | None
    title: str
    text: str = ""
    strategies: tuple[str, ...] = ()  # catalogue names
    promise: float | None = None  # speedup over the parent's program that the node's author expects
    data: Any = None  # the author's internal representation of the change
    state: State = "open"
    tries: int = 0  # attempts so far: programs, and replies that led to no result
    candidate: int | None = None  # number of its program; null for the root, which has the task's original model
    failed: int | None = None  # number of its last incorrect program, where a repair starts
    diagnosis: str = ""  # diagnosis of its last program
    predicted: Belief | None = None  # predicted gain of its last attempt

    @property
    def number(self) -> int:
        return int(self.id[1:])


@dataclass
class Tree:
    revision: int = 0
    nodes: dict[str, Node] = field(default_factory=lambda: {ROOT: Node(ROOT, None, "The task's own model", state="done")})
    _last: int = 0

    def copy(self) -> Tree:
        return Tree(self.revision, {name: replace(node) for name, node in self.nodes.items()}, self._last)

    def new_id(self) -> str:
        self._last += 1
        return f"n{self._last}"

    def children(self, parent: str) -> list[Node]:
        return [node for node in self.nodes.values() if node.parent == parent]

    def below(self, root: str) -> Iterator[Node]:
        """Yields all nodes under `root`, parents before children."""
        for child in self.children(root):
            yield child
            yield from self.below(child.id)

    def depth_first(self) -> Iterator[tuple[int, Node]]:
        """Yields (depth, node) for every node, in the order of a nested list."""

        def walk(node: Node, depth: int) -> Iterator[tuple[int, Node]]:
            yield depth, node
            for child in self.children(node.id):
                yield from walk(child, depth + 1)

        yield from walk(self.nodes[ROOT], 0)

    @property
    def open(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.state == "open"]

    @property
    def frontier(self) -> list[Node]:
        """Returns the nodes that can be tried now, in numerical order: open nodes whose parent has a program."""
        ready = [node for node in self.open if node.parent is not None and self.nodes[node.parent].state == "done"]
        return sorted(ready, key=lambda node: node.number)

    def node_of(self, candidate: int) -> Node | None:
        """Returns the node that this candidate belongs to."""
        return next((node for node in self.nodes.values() if node.candidate == candidate), None)

    def plant(self, title: str, text: str) -> Node:
        """Adds a node under the root without using a script."""
        node = Node(self.new_id(), ROOT, title, text)
        self.nodes[node.id] = node
        self.revision += 1
        return node

    # changes made by results

    def settled(self, node: Node, candidate: int) -> None:
        """Records that the node now has a correct program."""
        node.state, node.candidate, node.failed = "done", candidate, None
        self.revision += 1

    def carry_over(self, node: Node) -> list[Node]:
        """Moves untried siblings under a node that yielded a gain. Siblings with different strategies can be combined with it; those with the same
        strategies are alternatives to it and stay where they are. Nodes directly under the root also stay, because whole programs are alternatives to
        each other. Returns the nodes that moved."""
        if node.parent == ROOT:
            return []
        beside = [other for other in self.children(node.parent or ROOT) if other.state == "open" and not other.tries and other.strategies]
        moved = [other for other in beside if not set(other.strategies) & set(node.strategies)]
        for other in moved:
            other.parent = node.id
        return moved

    def tried_in_vain(self, node: Node, failed: int | None, diagnosis: str) -> None:
        """Records a failed attempt and its findings. The node stays open until it has been tried MOST_TRIES times."""
        node.tries, node.diagnosis = node.tries + 1, diagnosis
        node.failed = failed if failed is not None else node.failed
        self.revision += 1
        if node.tries >= MOST_TRIES:
            self.give_up(node)

    def give_up(self, node: Node) -> None:
        """Closes the node without a program. Its waiting children do not depend on it, so they move up to its parent."""
        node.state = "given up"
        for child in self.children(node.id):
            child.parent = node.parent
        self.revision += 1
