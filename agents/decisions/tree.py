"""A tree of decisions: open nodes are ideas, closed ones have a program, and what hangs below a node is done to that node's program.

The root is the task's own model. Below an open node there are only open ones: they wait until it has a program. Scripts change the tree
(`agents.decisions.script`), and so do results (`settled`, `given_up`); each change makes a new revision, so that a script tells which tree it read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from agents.decisions.belief import Belief

ROOT = "n0"
MOST_TRIES = 3  # programs for one node, its repairs among them

State = Literal["open", "done", "given up"]


@dataclass
class Node:
    id: str
    parent: str | None
    title: str
    text: str = ""
    strategies: tuple[str, ...] = ()  # of the catalogue
    promise: float | None = None  # speedup over the parent's program, as the author of the node expects it
    data: Any = None  # the author's own form of it
    state: State = "open"
    tries: int = 0  # programs and replies that came to nothing
    candidate: int | None = None  # its program; of the root null, for it is the task's own model
    failed: int | None = None  # its last program that was not right, which a repair begins from
    diagnosis: str = ""  # of its last program
    predicted: Belief | None = None  # what its last attempt was to gain

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
        """All nodes under `root`, each before its own children."""
        for child in self.children(root):
            yield child
            yield from self.below(child.id)

    def depth_first(self) -> Iterator[tuple[int, Node]]:
        """(depth, node) of every node, as a nested list shows them."""

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
        """What can be tried now: open nodes whose parent has a program, in order of their numbers."""
        ready = [node for node in self.open if node.parent is not None and self.nodes[node.parent].state == "done"]
        return sorted(ready, key=lambda node: node.number)

    def node_of(self, candidate: int) -> Node | None:
        """The node whose program this candidate is."""
        return next((node for node in self.nodes.values() if node.candidate == candidate), None)

    def plant(self, title: str, text: str) -> Node:
        """A node below the root that no script asked for."""
        node = Node(self.new_id(), ROOT, title, text)
        self.nodes[node.id] = node
        self.revision += 1
        return node

    # what results change

    def settled(self, node: Node, candidate: int) -> None:
        """The node has a program that is right."""
        node.state, node.candidate, node.failed = "done", candidate, None
        self.revision += 1

    def carry_over(self, node: Node) -> list[Node]:
        """What waits untried beside a node that gained is done on top of it: other strategies combine, the same ones are another way to the same
        end and stay. Whole programs, below the root, are alternatives. Returns what moved."""
        if node.parent == ROOT:
            return []
        beside = [other for other in self.children(node.parent or ROOT) if other.state == "open" and not other.tries and other.strategies]
        moved = [other for other in beside if not set(other.strategies) & set(node.strategies)]
        for other in moved:
            other.parent = node.id
        return moved

    def tried_in_vain(self, node: Node, failed: int | None, diagnosis: str) -> None:
        """An attempt came to nothing. The node stays open with what was found, until it has been tried MOST_TRIES times."""
        node.tries, node.diagnosis = node.tries + 1, diagnosis
        node.failed = failed if failed is not None else node.failed
        self.revision += 1
        if node.tries >= MOST_TRIES:
            self.give_up(node)

    def give_up(self, node: Node) -> None:
        """The node is closed without a program. What waited below it can stand without it, and moves up to its parent."""
        node.state = "given up"
        for child in self.children(node.id):
            child.parent = node.parent
        self.revision += 1
