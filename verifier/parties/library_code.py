"""Collects the source of the library classes that make up a model, so that program authors know the names and layouts of its parameters, and the
values of the attributes that this source reads, which a configuration sets."""

# sandboxed: reads the classes that tasks use

from __future__ import annotations

import inspect
import re

import torch

MOST = 24_000  # characters in total
FAMILIAR = ("torch", "builtins")  # modules whose code does not need to be shown
READ = re.compile(r"\bself\.((?:config\.)?[A-Za-z_]\w*)")  # an attribute that a method reads
MOST_VALUES, LONGEST_VALUE = 24, 60  # attributes of a class whose values are given, and the length of one in characters


def library_code(model: torch.nn.Module, task: str) -> dict[str, str]:
    """Returns the source of the classes of all modules, except torch's own and those in the `task` module, by qualified name, outermost first, each
    followed by a comment with the values that it reads. Omits classes without source and anything that would exceed `MOST`."""
    found: dict[str, str] = {}
    left = MOST
    together: dict[type, list[torch.nn.Module]] = {}
    for module in model.modules():
        together.setdefault(type(module), []).append(module)
    for kind, modules in together.items():
        home = kind.__module__
        if home == task or home.partition(".")[0] in FAMILIAR:
            continue
        try:
            source = inspect.getsource(kind)
        except (OSError, TypeError):
            continue
        source += values_read(source, modules)
        if len(source) <= left:
            found[f"{home}.{kind.__qualname__}"] = source
            left -= len(source)
    return found


def values_read(source: str, modules: list[torch.nn.Module]) -> str:
    """Returns a comment with the values of the attributes that a class's `source` reads, where all of these `modules` agree, or "" if there are none.
    Numbers, texts and parts without parameters (an activation) have values; tensors and methods do not."""
    said = []
    for name in dict.fromkeys(READ.findall(source)):
        values = {value(module, name) for module in modules} if name != "training" else {""}
        if len(values) == 1 and (only := values.pop()):
            said.append(f"self.{name} = {only}")
    return f"\n# In this model: {', '.join(said[:MOST_VALUES])}\n" if said else ""


def value(module: torch.nn.Module, name: str) -> str:
    """Returns an attribute's value as text, or "" if it has none that fits on a line."""
    found: object = module
    for part in name.split("."):
        inner = found._modules.get(part, ...) if isinstance(found, torch.nn.Module) else ...
        found = inspect.getattr_static(found, part, inner)  # static, so that no code of a property runs
    plain = isinstance(found, (bool, int, float, str)) or found is None
    if plain or (isinstance(found, torch.nn.Module) and next(found.parameters(), None) is None):
        said = repr(found)
        return said if len(said) <= LONGEST_VALUE and "\n" not in said else ""
    return ""
