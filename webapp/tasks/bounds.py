"""Finds the constraints that a module's layers place on its inputs, by parsing the source without running it.

The constraints are the range of indices, which is the number of rows in the table that they index, and the input shape of the first layer.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

MOST_DEPTH = 6  # levels of modules nested within modules
LARGEST = 2**31 - 1
# Layers that look up rows by index, with the name of the argument that holds the number of rows.
TABLES = {"Embedding": "num_embeddings", "EmbeddingBag": "num_embeddings"}
# Layers with a known input width: the position and name of the argument that holds the width, and an example shape that contains it.
SHAPES = {
    "Linear": (0, "in_features", "16, {}"),
    "Bilinear": (0, "in1_features", "16, {}"),
    "LayerNorm": (0, "normalized_shape", "16, 128, {}"),
    "RMSNorm": (0, "normalized_shape", "16, 128, {}"),
    "Conv1d": (0, "in_channels", "8, {}, 256"),
    "Conv2d": (0, "in_channels", "8, {}, 64, 64"),
    "Conv3d": (0, "in_channels", "2, {}, 16, 32, 32"),
    "ConvTranspose2d": (0, "in_channels", "8, {}, 32, 32"),
    "BatchNorm1d": (0, "num_features", "16, {}"),
    "BatchNorm2d": (0, "num_features", "8, {}, 32, 32"),
    "InstanceNorm2d": (0, "num_features", "8, {}, 32, 32"),
    "GroupNorm": (1, "num_channels", "8, {}, 32, 32"),
    "RNN": (0, "input_size", "32, 16, {}"),
    "GRU": (0, "input_size", "32, 16, {}"),
    "LSTM": (0, "input_size", "32, 16, {}"),
    "MultiheadAttention": (0, "embed_dim", "32, 16, {}"),
    "TransformerEncoderLayer": (0, "d_model", "32, 16, {}"),
}
FUNCTIONS = {"embedding", "embedding_bag"}  # (input, weight)
OPERATIONS = {ast.Add: int.__add__, ast.Sub: int.__sub__, ast.Mult: int.__mul__, ast.FloorDiv: int.__floordiv__}

Expression = ast.expr | None


@dataclass(frozen=True)
class Rows:
    """The number of rows in the smallest table that an argument indexes. `count` is None if it depends on an unknown argument."""

    count: int | None
    written: str  # as written in the source, such as "vocab" or "vocab + 1"


@dataclass
class _Class:
    """The attributes that a class creates in its constructor, and its `forward` method."""

    node: ast.ClassDef
    init: ast.FunctionDef | None
    forward: ast.FunctionDef | None
    made: dict[str, ast.expr] = field(default_factory=dict)  # attribute -> the expression assigned to it


class IndexBounds:
    """Finds index bounds and input shapes for the classes of one source. `names` are module-level constants."""

    def __init__(self, tree: ast.Module):
        self.classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        self.names = {
            target.id: node.value for node in tree.body if isinstance(node, ast.Assign) for target in node.targets if isinstance(target, ast.Name)
        }

    def of(self, class_name: str, given: Mapping[str, str]) -> dict[str, Rows]:
        """Return the bounds, keyed by argument of `forward`.

        `given` holds constructor arguments as written in the source. Missing arguments have their defaults.
        """
        if class_name not in self.classes:
            return {}
        values = {name: _parsed(text) for name, text in given.items() if text.strip()}
        return self._of(class_name, values, 0)

    def shapes(self, class_name: str, given: Mapping[str, str]) -> dict[str, str]:
        """Return input shapes, keyed by argument of `forward`.

        An argument is included if a first layer receives it unchanged and that layer's width is known.
        """
        if class_name not in self.classes:
            return {}
        return self._shapes(class_name, {name: _parsed(text) for name, text in given.items() if text.strip()}, 0)

    def _shapes(self, class_name: str, values: Mapping[str, Expression], depth: int) -> dict[str, str]:
        known = self._read(class_name)
        if known.forward is None or depth > MOST_DEPTH:
            return {}
        scope = _Scope(_bound(known.init, values), self.names, known.made)
        calls = sorted((node for node in ast.walk(known.forward) if isinstance(node, ast.Call)), key=lambda call: (call.lineno, -call.col_offset))
        found: dict[str, str] = {}
        for call in calls:
            layer = _first_layer(known.made.get(_own_attribute(call.func)))
            if layer is None:
                continue
            name = _last_name(layer.func)
            if name in SHAPES and call.args and isinstance(call.args[0], ast.Name):
                place, keyword, shape = SHAPES[name]
                width = scope.number(_argument(layer, place, keyword))
                if width:
                    found.setdefault(call.args[0].id, shape.format(width))
            elif name in self.classes:
                inner = self._read(name)
                passed = {key: scope.resolved(value) for key, value in _passed(inner.init, layer).items()}
                within = self._shapes(name, passed, depth + 1)
                for key, value in _passed(inner.forward, call).items():
                    if key in within and isinstance(value, ast.Name):
                        found.setdefault(value.id, within[key])
        return found

    def _of(self, class_name: str, values: Mapping[str, Expression], depth: int) -> dict[str, Rows]:
        known = self._read(class_name)
        if known.forward is None or depth > MOST_DEPTH:
            return {}
        scope = _Scope(_bound(known.init, values), self.names, known.made)
        arguments = {place.arg for place in [*known.forward.args.posonlyargs, *known.forward.args.args]} - {"self"}
        found: dict[str, Rows] = {}
        for call in (node for node in ast.walk(known.forward) if isinstance(node, ast.Call)):
            for name, rows in self._looked_up(call, known, scope, depth):
                if name in arguments:
                    found[name] = _smaller(found.get(name), rows)
        return found

    def _looked_up(self, call: ast.Call, known: _Class, scope: _Scope, depth: int) -> Iterable[tuple[str, Rows]]:
        """Yield the names of the arguments that this call uses as indices."""
        if _last_name(call.func) in FUNCTIONS and len(call.args) > 1:
            rows = scope.first_size(call.args[1])
            return [(_root(call.args[0]), rows)] if rows else []
        made = _first_layer(known.made.get(_own_attribute(call.func)))
        if made is None:
            return []
        name = _last_name(made.func)
        if name in TABLES:
            size = _argument(made, 0, TABLES[name])
            return [(_root(argument), scope.rows(size)) for argument in call.args[:1]] if size is not None else []
        if name not in self.classes:
            return []
        inner = self._read(name)
        within = self._of(name, {key: scope.resolved(value) for key, value in _passed(inner.init, made).items()}, depth + 1)
        return [(_root(value), within[key]) for key, value in _passed(inner.forward, call).items() if key in within]

    def _read(self, name: str) -> _Class:
        """Read a class together with its base classes in the same source. Its own definitions override those of the base classes."""
        methods: dict[str, ast.FunctionDef] = {}
        made: dict[str, ast.expr] = {}
        for node in self._ancestry(name):
            methods |= {item.name: item for item in node.body if isinstance(item, ast.FunctionDef)}
            for assign in (found for found in ast.walk(node) if isinstance(found, ast.Assign | ast.AnnAssign) and found.value is not None):
                made |= _assigned(assign)
        return _Class(self.classes[name], methods.get("__init__"), methods.get("forward"), made)

    def _ancestry(self, name: str, depth: int = 0) -> list[ast.ClassDef]:
        node = self.classes.get(name)
        if node is None or depth > MOST_DEPTH:
            return []
        return [*(found for base in node.bases for found in self._ancestry(ast.unparse(base), depth + 1)), node]


@dataclass(frozen=True)
class _Scope:
    """The names known in a constructor: its arguments, the module's constants and the attributes stored in `self`, in that order."""

    arguments: Mapping[str, Expression]
    names: Mapping[str, ast.expr]
    made: Mapping[str, ast.expr]

    def rows(self, size: ast.expr) -> Rows:
        return Rows(self.number(size), ast.unparse(size))

    def first_size(self, weight: ast.expr) -> Rows | None:
        """Return the number of rows of `self.weight` if it is created by `nn.Parameter(torch.randn(rows, width))`."""
        made = self.made.get(_own_attribute(weight))
        while isinstance(made, ast.Call) and _last_name(made.func) == "Parameter" and made.args:
            made = made.args[0]
        return self.rows(made.args[0]) if isinstance(made, ast.Call) and made.args else None

    def resolved(self, value: ast.expr) -> ast.expr:
        """Return the value as a number if possible, so that it has the same meaning in another constructor."""
        number = self.number(value)
        return value if number is None else ast.Constant(number)

    def number(self, value: Expression, depth: int = 0) -> int | None:
        if depth > 20 or value is None:
            return None
        if isinstance(value, ast.Constant):
            return value.value if isinstance(value.value, int) and not isinstance(value.value, bool) and abs(value.value) <= LARGEST else None
        if isinstance(value, ast.Name):
            return self.number(self.arguments[value.id] if value.id in self.arguments else self.names.get(value.id), depth + 1)
        if isinstance(value, ast.Attribute):
            return self.number(self.made.get(_own_attribute(value)), depth + 1)
        if isinstance(value, ast.BinOp) and type(value.op) in OPERATIONS:
            left, right = self.number(value.left, depth + 1), self.number(value.right, depth + 1)
            if left is None or right is None or (isinstance(value.op, ast.FloorDiv) and not right):
                return None
            found = OPERATIONS[type(value.op)](left, right)
            return found if abs(found) <= LARGEST else None
        return None


def _first_layer(made: Expression) -> ast.Call | None:
    """Return the call that creates a layer. For a `Sequential`, this is the call that creates its first layer, which receives the input."""
    while isinstance(made, ast.Call) and _last_name(made.func) == "Sequential" and made.args:
        made = made.args[0]
    return made if isinstance(made, ast.Call) else None


def _smaller(one: Rows | None, other: Rows) -> Rows:
    if one is None or (one.count is None and other.count is not None):
        return other
    return other if other.count is not None and one.count is not None and other.count < one.count else one


def _bound(method: ast.FunctionDef | None, values: Mapping[str, Expression]) -> dict[str, Expression]:
    """Return a method's arguments keyed by name. Each is the given value or else the default, or None if there is neither."""
    if method is None:
        return dict(values)
    places = [*method.args.posonlyargs, *method.args.args]
    defaults: list[Expression] = [None] * (len(places) - len(method.args.defaults)) + list(method.args.defaults)
    found = {place.arg: default for place, default in zip(places, defaults, strict=True)}
    found |= {place.arg: default for place, default in zip(method.args.kwonlyargs, method.args.kw_defaults, strict=True)}
    return found | dict(values)


def _passed(method: ast.FunctionDef | None, call: ast.Call) -> dict[str, ast.expr]:
    """Return a call's arguments keyed by the method's parameter names."""
    names = [place.arg for place in [*method.args.posonlyargs, *method.args.args]][1:] if method else []
    by_place = {name: value for name, value in zip(names, call.args, strict=False) if not isinstance(value, ast.Starred)}
    return by_place | {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}


def _argument(call: ast.Call, place: int, name: str) -> Expression:
    named = next((keyword.value for keyword in call.keywords if keyword.arg == name), None)
    return named if named is not None or len(call.args) <= place else call.args[place]


def _assigned(assign: ast.Assign | ast.AnnAssign) -> dict[str, ast.expr]:
    """Return the values assigned by `self.a = self.b = value` or `self.a, self.b = one, other`, keyed by attribute."""
    value = assign.value
    assert value is not None
    found: dict[str, Any] = {}
    for target in assign.targets if isinstance(assign, ast.Assign) else [assign.target]:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            found |= {_own_attribute(one): to for one, to in zip(target.elts, value.elts, strict=True)}
        else:
            found[_own_attribute(target)] = value
    return {name: to for name, to in found.items() if name}


def _own_attribute(node: ast.expr) -> str:
    """Return "table" for `self.table`, and "" for anything else."""
    return node.attr if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self" else ""


def _last_name(node: ast.expr) -> str:
    """Return "Embedding" for `torch.nn.Embedding`."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _root(node: ast.expr) -> str:
    """Return "ids" for `ids`, `ids.long()`, `ids[:, 0]` and `ids.view(-1)`."""
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Call):
            node = node.func
        elif isinstance(node, ast.Attribute | ast.Subscript):
            node = node.value
        else:
            return ""
    return node.id


def _parsed(text: str) -> Expression:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
