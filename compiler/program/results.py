"""Rebuilds the result of forward from its leaves in the same form as the task's forward: lists, tuples, dicts, and classes of the task or of
libraries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


def written(tree: Any, leaf: Callable[[int], str], top: bool = False) -> str:
    """Returns Python code for `tree`, where `leaf(n)` is the expression of the n-th leaf. A tuple at the `top` level needs no parentheses."""
    if isinstance(tree, int):
        return leaf(tree)
    if isinstance(tree, list):
        return f"[{', '.join(written(item, leaf) for item in tree)}]"
    if isinstance(tree.get("tuple"), list):
        items = [written(item, leaf) for item in tree["tuple"]]
        return f"({items[0]},)" if len(items) == 1 else ", ".join(items) if top and items else f"({', '.join(items)})"
    if isinstance(tree.get("made"), dict):
        return _made(tree["made"], [written(item, leaf) for item in tree["made"]["items"]])
    return "{" + ", ".join(f"{_key(key)}: {written(item, leaf)}" for key, item in tree.items()) + "}"


def copied(tree: Any, tensor: Callable[[int], bool], at: str, top: bool = False) -> str:
    """Returns code for the same results with every tensor cloned. `at` is the expression of the (sub)tree."""
    places = dict(_places(tree, at))
    text = written(tree, lambda index: f"{places[index]}.clone()" if tensor(index) else places[index], top)
    return text


def classes(tree: Any) -> Iterator[tuple[str, str]]:
    """Yields the module and name of each instantiated class, except builtins."""
    if isinstance(tree, list):
        for item in tree:
            yield from classes(item)
    elif isinstance(tree, dict):
        if isinstance(tree.get("made"), dict):
            made = tree["made"]
            if made["module"] != "builtins":
                yield made["module"], made["class"]
            yield from classes(made["items"])
        else:
            yield from classes(list(tree.values()))


def _places(tree: Any, at: str) -> Iterator[tuple[int, str]]:
    if isinstance(tree, int):
        yield tree, at
    elif isinstance(tree, list):
        for n, item in enumerate(tree):
            yield from _places(item, f"{at}[{n}]")
    elif isinstance(tree.get("tuple"), list):
        yield from _places(tree["tuple"], at)
    elif isinstance(tree.get("made"), dict):
        made = tree["made"]
        for n, item in enumerate(made["items"]):
            if made.get("names"):
                yield from _places(item, f"{at}.{made['names'][n]}")
            else:
                yield from _places(
                    item, f"{at}[{made['keys'][n] if 'keys' in made else n!r}]" if "keys" not in made else f"{at}[{made['keys'][n]!r}]"
                )
    else:
        for key, item in tree.items():
            yield from _places(item, f"{at}[{key!r}]")


def _made(made: dict[str, Any], items: list[str]) -> str:
    name = made["class"]
    if made["module"] == "torch.return_types":
        return f"torch.return_types.{name}(({', '.join(items)},))"
    if "keys" in made:
        keys = made["keys"]
        if name == "dict":
            return "{" + ", ".join(f"{key!r}: {item}" for key, item in zip(keys, items, strict=True)) + "}"
        return f"{name}([{', '.join(f'({key!r}, {item})' for key, item in zip(keys, items, strict=True))}])"
    return f"{name}({', '.join(f'{field}={item}' for field, item in zip(made['names'], items, strict=True))})"


def _key(key: str) -> str:
    return f'"{key}"' if key.isprintable() and '"' not in key and "\\" not in key else repr(key)
