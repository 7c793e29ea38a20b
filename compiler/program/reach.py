"""Finds what a part of a module needs from the rest: the names that it reads, and the statements that define no name but change the objects behind
these names."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator

COMPOUND = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.TryStar, ast.Match)
SEEDED = frozenset({"torch", "numpy", "random"})  # libraries with global state that a task may set, such as seeds and default types
DYNAMIC = frozenset({"globals", "eval", "exec", "locals", "vars"})  # these functions read names that do not appear in the syntax tree


class Reach:
    """The dependencies in a module (`tree`), which defines the class `model`. `apart` holds the names of its declarations, on which no other code
    depends."""

    def __init__(self, tree: ast.Module, model: ast.ClassDef, apart: frozenset[str]):
        self.tree, self.model, self.apart = tree, model, apart
        self.makers: dict[str, list[ast.stmt]] = {}
        for item in tree.body:
            for name in bound_by(item):
                self.makers.setdefault(name, []).append(item)
        self.lineage = self._lineage()
        self._reached: dict[int, set[str]] = {}

    def closure(self, parts: Iterable[ast.AST]) -> set[str]:
        """Returns the module-level names that `parts` read, directly or through statements that bind or change them."""
        used: set[str] = set()
        waiting: list[ast.AST] = list(parts)
        seen: set[int] = set()
        while waiting:
            while waiting:
                part = waiting.pop()
                for name in free_names(part):
                    if name in used or hasattr(builtins, name) and name not in self.makers:
                        if name in DYNAMIC:
                            waiting += [item for item in self.tree.body if id(item) not in seen and self._plain(item)]
                            seen.update(id(item) for item in self.tree.body)
                            used.update(bound for item in self.tree.body if self._plain(item) for bound in bound_by(item))
                        continue
                    used.add(name)
                    waiting += [item for item in self.makers.get(name, []) if item is not self.model]
            for item in self.tree.body:
                if id(item) not in seen and self._plain(item) and self.changes(item, used):
                    seen.add(id(item))
                    waiting.append(item)
        return used

    def changes(self, item: ast.stmt, used: set[str]) -> bool:
        """Returns whether a statement changes the object behind one of the given names, or the state of a library, without defining the name."""
        if self.is_script(item):
            return False
        if isinstance(item, COMPOUND):
            return any(self.changes(inner, used) for inner in statements_of(item))
        if isinstance(item, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Delete)):
            roots = [root for target in targets_of(item) if (root := _root(target))]
            return any(self._own(name) & {*used, self.model.name} or self._library(name) for name in roots)
        if isinstance(item, ast.Expr):
            return self._call_changes(item.value, used)
        if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            makers = [*item.decorator_list, *self._subclassed(item)]
            return any(self._holder(name) & used for name in self._through(makers)) or bool(self._told_of(item) & used)
        return False

    def names_model(self, tree: ast.AST) -> bool:
        """Returns whether `tree` mentions the class by name in code or in a string, other than as an argument of `super`."""
        asked = {id(node.args[0]) for node in ast.walk(tree) if isinstance(node, ast.Call) and _root(node.func) == "super" and node.args}
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and node.id == "Model" and id(node) not in asked:
                return True
            if isinstance(node, ast.Constant) and node.value == "Model":
                return True
        return False

    @staticmethod
    def is_script(item: ast.stmt) -> bool:
        """Recognises `if __name__ == "__main__":`, whose body does not run on import."""
        return isinstance(item, ast.If) and any(isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(item.test))

    def _plain(self, item: ast.stmt) -> bool:
        return item is not self.model and not bound_by(item) & self.apart

    def _lineage(self) -> list[ast.ClassDef]:
        """Returns `Model` and the classes of this module from which it inherits, approximately in Python's method resolution order."""
        found: list[ast.ClassDef] = []
        waiting = [self.model]
        while waiting:
            owner = waiting.pop(0)
            if owner not in found:
                found.append(owner)
                named = [base.id for base in owner.bases if isinstance(base, ast.Name)]
                waiting += [item for name in named for item in self.makers.get(name, []) if isinstance(item, ast.ClassDef)]
        return found

    def _own(self, name: str) -> set[str]:
        """Returns the name if the module itself binds it other than by an import."""
        makers = self.makers.get(name, [])
        return {name} if makers and not all(isinstance(item, (ast.Import, ast.ImportFrom)) for item in makers) or name == self.model.name else set()

    def _data(self, name: str) -> set[str]:
        """Returns the name if it refers to a mutable value rather than a function, class or module."""
        definitions = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        return {name} if any(not isinstance(item, definitions) for item in self.makers.get(name, [])) else set()

    def _holder(self, name: str) -> set[str]:
        """Returns the name if it refers to a mutable value or to a class of this module, whose attributes may hold a table."""
        return {name} if any(isinstance(item, ast.ClassDef) for item in self.makers.get(name, [])) else self._data(name)

    def _library(self, name: str) -> bool:
        for item in self.makers.get(name, []):
            if isinstance(item, ast.Import) and any(
                (alias.asname or alias.name.split(".")[0]) == name and alias.name.split(".")[0] in SEEDED for alias in item.names
            ):
                return True
            if isinstance(item, ast.ImportFrom) and (item.module or "").split(".")[0] in SEEDED:
                return True
        return False

    def _call_changes(self, value: ast.expr, used: set[str]) -> bool:
        if not any(isinstance(node, ast.Call) for node in ast.walk(value)):
            return False
        root = next((_root(node.func) for node in ast.walk(value) if isinstance(node, ast.Call)), None)
        if root is not None and self._library(root):
            return True
        if root == "print":
            return False
        direct = {name for name in free_names(value) if self._own(name)}
        if direct & {*used, self.model.name} and root is not None and (self._holder(root) or root in (self.model.name, "setattr", "delattr")):
            return True  # REGISTRY.append(...), CONFIG.update(...), Registry.add(...), setattr(Block, ...)
        return any(self._data(name) & used for name in self._through([value]))

    def _subclassed(self, item: ast.stmt) -> list[ast.AST]:
        """Returns the code that Python runs to create the class: the metaclass and the bases' `__init_subclass__`."""
        if not isinstance(item, ast.ClassDef):
            return []
        found: list[ast.AST] = [keyword.value for keyword in item.keywords]
        for base in self._bases(item):
            found += _on_subclass(base)
            found += [keyword.value for keyword in base.keywords]
        return found

    def _told_of(self, item: ast.stmt) -> set[str]:
        """Returns what can keep a record of a class: its bases with `__init_subclass__` or a metaclass of this module, and these metaclasses."""
        if not isinstance(item, ast.ClassDef):
            return set()
        bases = self._bases(item)
        told = {base.name for base in bases if _on_subclass(base) or self._metaclasses(base)}
        return told.union(*map(self._metaclasses, [item, *bases]))

    def _metaclasses(self, item: ast.ClassDef) -> set[str]:
        return {name for word in item.keywords if word.arg == "metaclass" for name in self._own(_root(word.value) or "")}

    def _bases(self, item: ast.ClassDef) -> list[ast.ClassDef]:
        """Returns the classes of this module that a class inherits from, directly or through others."""
        found: list[ast.ClassDef] = []
        waiting = [item]
        while waiting:
            named = [_root(base) or "" for base in waiting.pop().bases]
            new = [maker for name in named for maker in self.makers.get(name, []) if isinstance(maker, ast.ClassDef) and maker not in found]
            found += new
            waiting += new
        return found

    def _through(self, parts: list[ast.AST]) -> set[str]:
        """Returns the names that `parts` reach through functions and classes, but not through statements that change them."""
        used: set[str] = set()
        waiting = list(parts)
        while waiting:
            for name in free_names(waiting.pop()):
                if name not in used:
                    used.add(name)
                    waiting += [item for item in self.makers.get(name, []) if item is not self.model]
        return used


def free_names(tree: ast.AST, bound: frozenset[str] = frozenset()) -> set[str]:
    """Returns the names that `tree` reads from the module, excluding parameters and local variables of functions."""
    found: set[str] = set()
    if isinstance(tree, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        arguments = [*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs, *filter(None, [tree.args.vararg, tree.args.kwarg])]
        outside = [*tree.args.defaults, *filter(None, tree.args.kw_defaults), *(a.annotation for a in arguments if a.annotation)]
        outside += [*getattr(tree, "decorator_list", []), *filter(None, [getattr(tree, "returns", None)])]
        for part in outside:
            found |= free_names(part, bound)
        body = tree.body if isinstance(tree.body, list) else [tree.body]
        inside = [node for part in body for node in ast.walk(part)]
        shared = {name for node in inside if isinstance(node, ast.Global) for name in node.names}
        stored = {node.id for node in inside if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        inner = bound | (stored - shared) | {a.arg for a in arguments}
        for statement in body:
            found |= free_names(statement, frozenset(inner))
        return found | shared
    if isinstance(tree, ast.Name):
        return {tree.id} - bound if isinstance(tree.ctx, ast.Load) else set()
    if isinstance(tree, ast.AugAssign) and isinstance(tree.target, ast.Name):
        found |= {tree.target.id} - bound
    for child in ast.iter_child_nodes(tree):
        found |= free_names(child, bound)
    return found


def bound_by(item: ast.stmt) -> set[str]:
    """Returns the names that a module-level statement binds, at any depth inside `if`, `for`, `with` and `try`."""
    if isinstance(item, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
        return {item.name}
    if isinstance(item, (ast.Import, ast.ImportFrom)):
        return {(alias.asname or alias.name).split(".")[0] for alias in item.names}
    if isinstance(item, ast.AugAssign):
        return _stored([item.target])
    if isinstance(item, COMPOUND):
        found = {name for inner in statements_of(item) for name in bound_by(inner)}
        if isinstance(item, ast.For):
            found |= _stored([item.target])
        if isinstance(item, ast.With):
            found |= _stored([one.optional_vars for one in item.items if one.optional_vars])
        return found | {node.target.id for node in _tests(item) if isinstance(node, ast.NamedExpr)}
    if isinstance(item, ast.Assign):
        return _stored(item.targets)
    if isinstance(item, ast.AnnAssign):
        return _stored([item.target])
    return {node.target.id for node in ast.walk(item) if isinstance(node, ast.NamedExpr)} if isinstance(item, ast.Expr) else set()


def statements_of(item: ast.stmt) -> Iterator[ast.stmt]:
    """Yields the direct child statements of all branches of a compound statement."""
    for field in ("body", "orelse", "finalbody"):
        yield from getattr(item, field, [])
    for branch in [*getattr(item, "handlers", []), *getattr(item, "cases", [])]:
        yield from branch.body


def _on_subclass(item: ast.ClassDef) -> list[ast.FunctionDef]:
    return [one for one in item.body if isinstance(one, ast.FunctionDef) and one.name == "__init_subclass__"]


def targets_of(item: ast.stmt) -> list[ast.expr]:
    """Returns the targets that an assignment writes or a deletion removes."""
    if isinstance(item, (ast.Assign, ast.Delete)):
        return list(item.targets)
    return [item.target] if isinstance(item, (ast.AugAssign, ast.AnnAssign)) else []


def _stored(targets: Iterable[ast.expr]) -> set[str]:
    """Returns the names that are themselves assigned, excluding those for which only items or attributes are assigned."""
    return {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _tests(item: ast.stmt) -> Iterator[ast.AST]:
    for field in ("test", "iter", "subject"):
        if (part := getattr(item, field, None)) is not None:
            yield from ast.walk(part)


def _root(target: ast.AST) -> str | None:
    """Returns the root name of a target: `CONFIG` for `CONFIG["a"].b`, or the name itself if it is a plain name."""
    if isinstance(target, ast.Name):
        return target.id
    while isinstance(target, (ast.Attribute, ast.Subscript, ast.Call, ast.Starred)):
        target = target.func if isinstance(target, ast.Call) else target.value
    return target.id if isinstance(target, ast.Name) else None
