"""Mangles private names (`self.__w`), to which Python prepends the class name."""

from __future__ import annotations

import ast
from collections.abc import Iterator


def is_private(name: str) -> bool:
    """Returns whether Python mangles the name with its class name."""
    return name.startswith("__") and not name.endswith("__") and "." not in name


_FIELDS = ("id", "attr", "arg", "name", "asname", "rest")  # AST fields that hold an identifier


def identifiers(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        for field in _FIELDS:
            if isinstance(value := getattr(node, field, None), str):
                yield value
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            yield from node.names


def mangle(tree: ast.AST, owner: str) -> None:
    """Mangles private names as Python does inside a class called `owner`; names in a nested class belong to the nested class."""
    prefix = "_" + owner.lstrip("_")

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.ClassDef):
            return
        for field in _FIELDS:
            if isinstance(value := getattr(node, field, None), str) and is_private(value):
                setattr(node, field, prefix + value)
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            node.names = [prefix + name if is_private(name) else name for name in node.names]
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(tree)
