"""Non-tensor arguments: numbers, flags, words, members of the task's enumerations, and None.

They are the same in every draw of the task's inputs, so a program could hard-code them. Each is replaced in a separate trial, because a task may
reject a different number of heads but accept a different window. Other numbers are drawn at random: a program could know a fixed one as well.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from verifier.correctness.bounds import root_mean_square
from verifier.judge.memory import large
from verifier.judge.session import Values
from verifier.layout import Spec

EACH = 6  # number of arguments of one kind that are replaced one at a time; any further ones are replaced together
WORDS = 6  # maximum number of other words that are tried
LIKE = 2  # number of inputs whose shape is used to draw a value for None
SMALLER = (0.4, 0.9)  # range of the factor by which a float is multiplied: most tasks accept a smaller slope, share or epsilon
NEAR = 4  # divisor: an integer first moves towards zero by at most this part of itself
_FAMILIES = (  # words that torch's own functions accept
    ("mean", "sum", "none"),
    ("none", "tanh"),
    ("relu", "gelu", "silu", "tanh", "sigmoid"),
    ("nearest", "bilinear", "bicubic", "linear", "trilinear", "area"),
    ("constant", "reflect", "replicate", "circular"),
    ("zeros", "border", "reflection"),
    ("fro", "nuc"),
    ("backward", "ortho", "forward"),
    ("floor", "trunc"),
    ("left", "right"),
)
_WORD = re.compile(r"[\w.+\-]{1,32}")
_OBJECTS = ("fields", "tuple", "ordered")  # kinds of objects whose fields are replaced too
Path = tuple[Any, ...]


@dataclass(frozen=True)
class Member:
    """A member of an enumeration that the task's source defines."""

    of: str
    name: str

    @property
    def node(self) -> dict[str, list[str]]:
        return {"g": ["", f"{self.of}.{self.name}"]}


KINDS: dict[type, str] = {
    float: "other numbers",
    int: "other integers",
    bool: "other flags",
    str: "other words",
    Member: "other members",
    type(None): "values for None",
}


@dataclass(frozen=True)
class Place:
    """The place of a plain value in the argument tree."""

    path: Path
    value: bool | int | float | str | Member | None
    argument: int

    @property
    def kind(self) -> type:
        return type(self.value)


def places(tree: Any) -> list[Place]:
    """Returns the places of all plain values, in order."""
    return list(_places(tree, ()))


def _places(node: Any, path: Path) -> Iterator[Place]:
    if not isinstance(node, dict) or len(node) != 1:
        return
    (form, body), *_ = node.items()
    argument = next((step for step in path if isinstance(step, int)), 0)
    if form == "v" and type(body) in KINDS:
        yield Place(path, body, argument)
    if form == "g" and not body[0] and body[1].count(".") == 1:
        yield Place(path, Member(*body[1].split(".")), argument)
    for key, child in _children(form, body):
        yield from _places(child, (*path, form, *key))


def _children(form: str, body: Any) -> list[tuple[Path, Any]]:
    """Returns the children of a node, each with the steps that lead to it. The keys of a dict are not included."""
    if form in ("l", "u"):
        return [((index,), item) for index, item in enumerate(body)]
    if form == "m":
        return [((index, 1), pair[1]) for index, pair in enumerate(body)]
    if form == "d":
        return [((key,), item) for key, item in body.items()]
    if form == "o" and body["kind"] in _OBJECTS:
        return [(("items", index), item) for index, item in enumerate(body["items"])]
    return []


def replaced(tree: Any, path: Path, node: Any) -> Any:
    """Returns the tree with another node at the given place. The other nodes are shared with the original."""
    if not path:
        return node
    step, *rest = path
    if isinstance(tree, list):
        return [replaced(item, tuple(rest), node) if index == step else item for index, item in enumerate(tree)]
    return {key: replaced(item, tuple(rest), node) if key == step else item for key, item in tree.items()}


def alternatives(tree: Any, source: str, draws: random.Random) -> Iterator[tuple[str, list[Callable[[Values, int], Values | None]]]]:
    """Yields the name of each trial, and the functions that can replace the argument, most promising first. Each function takes the inputs and a
    seed, and returns null if it has no replacement for them. `source` is the task's source; `draws` draws the other numbers."""
    found = places(tree)
    for kind, name in KINDS.items():
        same = [place for place in found if place.kind is kind]
        for place in same[:EACH]:
            yield name if len(same) == 1 else f"{name} ({_called(place, tree)})", list(_ways(place, source, draws))
        others = (
            [] if kind is type(None) else [(place.path, other) for place in same[EACH:] for other in other_values(place.value, source, draws)[:1]]
        )
        if others:
            yield f"{name} (the others)", [partial(_values_at, others)]


def _called(place: Place, tree: Any) -> str:
    """Returns a readable name for a place: "argument 1", "argument 1, slope"."""
    node, names = tree, []
    for step in place.path:
        if isinstance(node, dict) and "names" in node and step == "items":
            names = node["names"]
        elif isinstance(node, list) and names and isinstance(step, int):
            return f"argument {place.argument}, {names[step]}"
        node = node[step]
    return f"argument {place.argument}"


def _ways(place: Place, source: str, draws: random.Random) -> Iterator[Callable[[Values, int], Values | None]]:
    if place.value is None:
        for like in range(LIKE):
            for draw in (_numbers, _row, _flags):
                yield partial(_tensor_at, place.path, like, draw)
        return
    for other in other_values(place.value, source, draws):
        yield partial(_values_at, [(place.path, other)])


def other_values(value: bool | int | float | str | Member | None, source: str, draws: random.Random) -> list[Any]:
    """Returns values that the task may accept instead. An integer may be a dimension, a size or an index. In most tasks, an integer somewhat nearer
    to zero is valid in each of these roles, the next one in nearly all, and half or twice the integer divides the same sizes as the integer itself.
    """
    if value is None:
        return []
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        step = draws.randint(1, max(abs(value) // NEAR, 1))
        near = [value - step, value - 1] if value > 0 else [value + step, value + 1]
        near += [int(value / 2), 2 * value] if abs(value) > 1 else []
        return [other for other in dict.fromkeys(near) if other != value]
    if isinstance(value, float):
        factor = draws.uniform(*SMALLER)
        return [value * factor if value else factor]
    if isinstance(value, Member):
        return [other for other in _members(value.of, source) if other != value]
    return [word for word in dict.fromkeys([*_family(value), *words(source)]) if word != value][:WORDS]


def _members(of: str, source: str) -> list[Member]:
    classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == of]
    targets = [one for node in classes for line in node.body if isinstance(line, ast.Assign) for one in line.targets]
    return [Member(of, one.id) for one in targets if isinstance(one, ast.Name) and not one.id.startswith("_")]


def _family(word: str) -> list[str]:
    return [other for family in _FAMILIES if word in family for other in family]


def words(source: str) -> list[str]:
    """Returns the words in a source, beginning with those used in comparisons or as keys for lookups."""
    compared: list[str] = []
    others: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare):
            compared += _texts(node)
        elif isinstance(node, ast.Dict):
            compared += [text for key in node.keys if key is not None for text in _texts(key)]
        elif isinstance(node, ast.MatchValue):
            compared += _texts(node.value)
        elif isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            others += _texts(node)
    return [word for word in dict.fromkeys([*compared, *others]) if _WORD.fullmatch(word)]


def _texts(node: ast.AST) -> list[str]:
    return [one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)]


def _values_at(others: list[tuple[Path, Any]], values: Values, seed: int) -> Values | None:
    tree = values.tree
    for path, other in others:
        tree = replaced(tree, path, other.node if isinstance(other, Member) else {"v": other})
    return Values(tree, values.specs, values.tensors, values.arena)


def _tensor_at(path: Path, like: int, draw: Callable[[torch.Tensor, torch.Generator], torch.Tensor], values: Values, seed: int) -> Values | None:
    """Puts a tensor in place of None."""
    floating = [tensor for tensor in values.tensors if tensor.is_floating_point() and tensor.dim()]
    if like >= len(floating) or large(2 * values.nbytes):
        return None
    other = draw(floating[like], torch.Generator(device=floating[like].device).manual_seed(seed))
    node = {"t": len(values.tensors)}
    return Values(replaced(values.tree, path, node), [*values.specs, Spec.of(other)], [*values.tensors, other])


def _numbers(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    drawn = torch.randn(like.shape, generator=generator, dtype=torch.float32, device=like.device)
    return drawn.mul_(root_mean_square(like) if like.numel() else 1.0).to(like.dtype)


def _row(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return _numbers(like[(0,) * (like.dim() - 1)] if like.numel() else like, generator)


def _flags(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    flags = torch.rand(like.shape, generator=generator, device=like.device) < 0.75
    flags[..., :1] = True  # a softmax has no result for a row that is entirely false
    return flags
