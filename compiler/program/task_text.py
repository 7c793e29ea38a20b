"""The parts of a task's source that a program takes over word for word: imports, what the constructor needs, the constructor."""

from __future__ import annotations

import ast
import builtins
import copy
import re
from functools import cached_property

from verifier.source import parse, top_level

DECLARATIONS = frozenset({"get_inputs", "get_init_inputs", "get_input_variants", "backward"})


class TaskText:
    """`keep_forward`: the task's own forward is taken over too, as `forward_eager`."""

    def __init__(self, source: str, keep_forward: bool = False):
        self.source, self.lines, self.tree = source, source.splitlines(), parse(source)
        self.names = top_level(self.tree)
        model = self.names["Model"]
        if not isinstance(model, ast.ClassDef):
            raise ValueError("Model is no class statement")
        self.model = model
        self.methods = {item.name: item for item in self.model.body if isinstance(item, ast.FunctionDef)}
        self.kept = self._kept_methods(keep_forward)

    @property
    def has_variants(self) -> bool:
        return "get_input_variants" in self.names

    def arguments(self) -> list[str]:
        """Names of forward's positional arguments, without self."""
        forward = self.methods.get("forward")
        if forward is None or forward.args.vararg or forward.args.kwonlyargs:
            raise ValueError("forward takes *args or keyword-only arguments")
        return [a.arg for a in [*forward.args.posonlyargs, *forward.args.args]][1:]

    def signature(self, names: list[str]) -> str:
        """Forward's parameters under these names, with their annotations and defaults as written."""
        forward = self.methods["forward"]
        returns = f" -> {ast.unparse(forward.returns)}" if forward.returns else ""
        parameters = copy.deepcopy(forward.args)
        for parameter, name in zip([*parameters.posonlyargs, *parameters.args][1:], names, strict=True):
            parameter.arg = name
        return f"({ast.unparse(parameters)}){returns}"

    @cached_property
    def bound(self) -> set[str]:
        """Names that the program's module has from the task."""
        return {name for item in self._kept_imports() for name in imported(item)} | {
            name for item in self._kept_definitions() for name in defined(item)
        }

    def imports(self) -> list[str]:
        """Import statements whose names are still used, `torch` always among them."""
        kept = self._kept_imports()
        there = any("torch" in imported(item) for item in kept)  # not under another name
        return list(dict.fromkeys([*map(self._segment, kept), *([] if there else ["import torch"])]))

    def definitions(self) -> list[str]:
        """Helper classes, functions and constants that the kept methods reach, in their order."""
        return [self._segment(item) for item in self._kept_definitions()]

    def _kept_imports(self) -> list[ast.Import | ast.ImportFrom]:
        used = self._used_names() | {"*"}
        found = [item for item in self.tree.body if isinstance(item, (ast.Import, ast.ImportFrom))]
        return [item for item in found if imported(item) & used or isinstance(item, ast.ImportFrom) and item.module == "__future__"]

    def _kept_definitions(self) -> list[ast.stmt]:
        used = self._used_names()
        return [item for item in self.tree.body if item is not self.model and (names := defined(item)) & used and not names & DECLARATIONS]

    def methods_text(self) -> str:
        """Class-level statements and the kept methods of `Model`, as members of `ModelNew`."""
        parts = []
        for item in self.model.body:
            if isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant):
                continue  # the docstring: the program has its own
            if isinstance(item, ast.FunctionDef) and item.name not in self.kept:
                continue
            text = self._segment(item)
            if isinstance(item, ast.FunctionDef) and item.name == "forward":
                text = re.sub(r"def forward\b", "def forward_eager", text, count=1)
            parts.append(text)
        return "\n\n".join(self._renamed(part) for part in parts)

    def bases(self) -> str:
        return ", ".join(ast.unparse(base) for base in self.model.bases)

    def _renamed(self, text: str) -> str:
        return re.sub(r"\bsuper\(Model\b", "super(ModelNew", text)

    def _kept_methods(self, keep_forward: bool) -> set[str]:
        """The constructor and what it calls on self."""
        kept: set[str] = set()
        waiting = ["__init__"] + (["forward"] if keep_forward else [])
        waiting += [name for name in self.methods if name.startswith("__") and name != "__init__"]
        waiting += [name for name in self.methods if name.startswith("_load") or name.endswith("_hook")]
        while waiting:
            name = waiting.pop()
            if name in kept or name not in self.methods:
                continue
            kept.add(name)
            for node in ast.walk(self.methods[name]):
                if isinstance(node, ast.Attribute) and node.attr in self.methods and node.attr != "forward":
                    waiting.append(node.attr)
        return kept

    def _used_names(self) -> set[str]:
        """Names that the kept members reach, through module-level definitions."""
        used: set[str] = set()
        waiting: list[ast.AST] = [*(self.methods[name] for name in self.kept), *self.model.bases]
        waiting += [item for item in self.model.body if not isinstance(item, ast.FunctionDef)]
        if "forward" in self.methods:
            waiting += [annotation for a in self.methods["forward"].args.args if (annotation := a.annotation)]
            waiting += [*self.methods["forward"].args.defaults, *filter(None, [self.methods["forward"].returns])]
        while waiting:
            for name in free_names(waiting.pop()):
                if name not in used and not hasattr(builtins, name):
                    used.add(name)
                    if name in self.names and self.names[name] is not self.model:
                        waiting.append(self.names[name])
        return used

    def _segment(self, item: ast.stmt) -> str:
        first = min([item.lineno, *(d.lineno for d in getattr(item, "decorator_list", []))])
        return "\n".join(self.lines[first - 1 : item.end_lineno])


def free_names(tree: ast.AST, bound: frozenset[str] = frozenset()) -> set[str]:
    """Names that `tree` reads from the module: not parameters and not what a function assigns itself."""
    found: set[str] = set()
    if isinstance(tree, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        arguments = [*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs, *filter(None, [tree.args.vararg, tree.args.kwarg])]
        outside = [*tree.args.defaults, *filter(None, tree.args.kw_defaults), *(a.annotation for a in arguments if a.annotation)]
        outside += [*getattr(tree, "decorator_list", []), *filter(None, [getattr(tree, "returns", None)])]
        for part in outside:
            found |= free_names(part, bound)
        body = tree.body if isinstance(tree.body, list) else [tree.body]
        stored = {n.id for part in body for n in ast.walk(part) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        inner = bound | stored | {a.arg for a in arguments}
        for statement in body:
            found |= free_names(statement, frozenset(inner))
        return found
    if isinstance(tree, ast.Name):
        return {tree.id} - bound if isinstance(tree.ctx, ast.Load) else set()
    for child in ast.iter_child_nodes(tree):
        found |= free_names(child, bound)
    return found


def imported(item: ast.Import | ast.ImportFrom) -> set[str]:
    return {(alias.asname or alias.name).split(".")[0] for alias in item.names}


def defined(item: ast.stmt) -> set[str]:
    if isinstance(item, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
        return {item.name}
    if isinstance(item, ast.Assign):
        return {n.id for target in item.targets for n in ast.walk(target) if isinstance(n, ast.Name)}
    if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
        return {item.target.id}
    return set()
