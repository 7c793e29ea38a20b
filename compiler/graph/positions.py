"""Recognises writes to one position of an axis (`out[t] = h`), which a capture contains as
`where(positions == number, expand(unsqueeze(part)), old contents)`."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.graph.values import plain
from verifier.graph import Node
from verifier.task import TensorSpec

WHERE = "aten.where.self"


def position_write(node: Node, by_name: Mapping[str, Node], specs: Mapping[str, TensorSpec]) -> tuple[int, int, str, str] | None:
    """Returns (axis, position, part, old contents) if the operator writes a part to one position along an axis, otherwise None. The part has the axes
    of the result, where the written axis has size 1 and leading axes of size 1 may be missing."""
    if node.op != WHERE or any(not isinstance(one, dict) or one.get("ref") not in specs for one in node.args) or node.kwargs:
        return None
    chosen, new, old = (one["ref"] for one in node.args)
    test, part, shape = by_name.get(chosen), by_name.get(new), node.outputs[0].shape
    if test is None or test.op != "aten.eq.Scalar" or part is None or part.op != "aten.expand.default" or tuple(specs[old].shape) != tuple(shape):
        return None
    places = by_name.get(test.args[0]["ref"])
    numbers = by_name.get(places.args[0]["ref"]) if places is not None and places.op == "aten.view.default" else places
    if numbers is None or not numbers.op.startswith("aten.arange") or not isinstance(test.args[1], int):
        return None
    lined_up = (1,) * (len(shape) - len(test.outputs[0].shape)) + tuple(test.outputs[0].shape)
    axes = [axis for axis, size in enumerate(lined_up) if size > 1]
    if len(axes) != 1 or lined_up[axes[0]] != shape[axes[0]] or [plain(one) for one in numbers.args if one is not None][:2] not in (
        [0, shape[axes[0]]], [shape[axes[0]]]
    ):  # fmt: skip
        return None
    axis, source = axes[0], part.args[0]["ref"]
    if not 0 <= test.args[1] < shape[axis]:
        return None
    own = tuple(specs[source].shape)
    wanted = [size for at, size in enumerate(shape) if at != axis and size > 1]
    if [size for size in own if size > 1] != wanted or specs[source].dtype != node.outputs[0].dtype or len(own) > len(shape):
        return None
    aligned = (1,) * (len(shape) - len(own)) + own
    if any(mine not in (1, full) or full > 1 and mine == 1 and at != axis for at, (mine, full) in enumerate(zip(aligned, shape, strict=True))):
        return None
    return axis, test.args[1], source, old
