"""The simulated model's scripts for a decision tree. They draw on the same specified knowledge as the model's ideas and its responses to a diagnosis.

The promises in a script contain no information about the times in the table: each is drawn at random around PROMISE. As elsewhere, the model's
knowledge shows in the changes that it proposes.
"""

from __future__ import annotations

from typing import Protocol

from agents.arena.landscape import Landscape, Point, replaced
from agents.arena.model import Hand
from agents.decisions.script import MOST_NEW, Add, Drop, Edited, Refine, ScriptReply, edited
from agents.decisions.tree import ROOT, Node
from agents.decisions.view import View
from agents.roles.situation import Situation

PROMISE, PROMISE_LOG = 1.2, 0.08  # median promised gain of a change, and the standard deviation of the gain's logarithm
WAY = 0.5  # promised gain of a whole program, as a fraction of the distance from eager to the floor (figures from the plan) on a log scale

Choices = dict[int, int]


class Answering(Protocol):
    """The part of the simulated roles that scripts need: changes that address a bottleneck."""

    def change(self, point: int, bottleneck: str, tried: set[int]) -> tuple[int, int] | None: ...


def script(hand: Hand, situation: Situation, view: View, answering: Answering, families: list[Choices], bottleneck: str) -> Edited:
    """Returns the tree edited by one script. `families`: choices that describe whole programs, used if the tree has none yet. `bottleneck`: the
    bottleneck of the best program."""
    landscape, best = hand.landscape, situation.best
    if best is None:
        changes, below, base = families, ROOT, landscape.default
    else:
        base, below = landscape.point(best.edit.options.point), view.best
        tried = {attempt.edit.options.point for attempt in situation.attempts}
        changes = _answers(landscape, base, bottleneck, tried, answering)
    moved = _moved(landscape, view, base, below) if best is not None else []
    promise = PROMISE if best is not None else _whole(landscape)
    adds = [_add(hand, below, choices, promise) for choices in changes]
    going = {operation.node for operation in moved}
    room = [drop for drop in view.room_for(len(adds)) if drop.node not in going]
    reply = ScriptReply(revision=view.tree.revision, ops=[*moved, *room, *adds])
    return edited(view.tree, reply, {axis.strategy for axis in landscape.axes})


def _answers(landscape: Landscape, base: Point, bottleneck: str, tried: set[int], answering: Answering) -> list[Choices]:
    found: list[Choices] = []
    known = set(tried)
    while len(found) < MOST_NEW:
        move = answering.change(landscape.index(base), bottleneck, known)
        if move is None:
            break
        known.add(landscape.index(replaced(base, *move)))
        found.append({move[0]: move[1]})
    return found


def _whole(landscape: Landscape) -> float:
    return max(landscape.eager_us / landscape.floor_us, 1.0) ** WAY if landscape.floor_us else PROMISE


def _add(hand: Hand, below: str, choices: Choices, promise: float) -> Add:
    landscape, point = hand.landscape, hand.landscape.default
    for axis, value in choices.items():
        point = replaced(point, axis, value)
    said = landscape.describe(point)
    promise *= hand.draw().lognormvariate(0, PROMISE_LOG)
    strategies = [landscape.axes[axis].strategy for axis in choices]
    return Add.model_validate({"op": "add", "parent": below, "title": said, "text": said, "strategies": strategies, "expected": promise}).carrying(
        choices
    )


def _moved(landscape: Landscape, view: View, base: Point, below: str) -> list[Refine | Drop]:
    """Moves single changes that are waiting under other programs to the best program, and drops those that it already includes."""
    waiting = [node for node in view.tree.open if node.parent not in (below, ROOT) and node.tries == 0 and len(node.data or {}) == 1]
    return [_there(landscape, node, base, below) for node in waiting]


def _there(landscape: Landscape, node: Node, base: Point, below: str) -> Refine | Drop:
    ((axis, value),) = node.data.items()
    if base[axis] == value:
        return Drop(op="drop", node=node.id, reason="the best program has it")
    said = {"title": node.title, "text": node.text, "strategies": list(node.strategies), "expected": node.promise}
    return Refine.model_validate({"op": "refine", "node": node.id, "parent": below, **said}).carrying(node.data)
