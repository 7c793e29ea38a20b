"""The parts of a task's source that a program keeps: imports, the constructor, and everything that the constructor needs."""

from __future__ import annotations

import ast
import copy
from collections.abc import Collection, Sequence
from functools import cached_property

from compiler.program.reach import Reach, bound_by, free_names
from compiler.program.results import classes
from compiler.program.source_text import NEW_NAME, SourceText
from verifier.graph import Graph
from verifier.private_names import is_private
from verifier.source import parse, top_level

DECLARATIONS = frozenset({"get_inputs", "get_init_inputs", "get_input_variants", "backward"})
EAGER = "forward_eager"  # the task's own forward if a program keeps it
_INHERITED = f"    def {EAGER}(self, *args, **kwargs):\n        return super().forward(*args, **kwargs)"


class TaskText:
    """The text that a program takes from its task. With `keep_forward`, the task's own forward is also kept, as `forward_eager`. `needed` holds the
    module-level names that the printed forward reads."""

    def __init__(self, source: str, keep_forward: bool = False, needed: Collection[str] = ()):
        self.tree = parse(source)
        self.names = top_level(self.tree)
        model = self.names["Model"]
        if not isinstance(model, ast.ClassDef):
            raise ValueError("Model is no class statement")
        self.model = model
        self.methods = {item.name: item for item in self.model.body if isinstance(item, ast.FunctionDef)}
        self.keep_forward, self.needed = keep_forward, frozenset(needed)
        self.text = SourceText(source, model, {"forward": EAGER} if keep_forward else {})
        self.reach = Reach(self.tree, model, DECLARATIONS)
        self.sets_default_type = any(name in source for name in ("set_default_dtype", "set_default_tensor_type"))
        self.cut: list[ast.Module] = []  # forward as printed and the statements that its parts replace, if forward was captured only in parts
        self.libraries: dict[str, str] = {}  # classes that forward instantiates, and the modules from which they are imported

    @classmethod
    def of(cls, source: str, graph: Graph) -> TaskText:
        """Builds the text that the program of a captured graph keeps."""
        found = {ast.parse(entry.found, mode="eval").body for entry in graph.inputs if entry.found}
        made = list(classes(graph.output_tree))
        needed = {name for tree in found for name in free_names(tree)} | {word.split(".")[0] for home, word in made if home != "torch.return_types"}
        cut = [ast.parse(text) for text in (graph.forward, *(part.statements for part in graph.parts))] if graph.parts else []
        keep = not cut and "get_input_variants" in top_level(parse(source))  # a forward that consists of parts also handles other shapes
        text = cls(source, keep, needed - {"self"})
        text.cut = cut
        text.libraries = {word: home for home, word in made if home not in ("", "torch.return_types")}
        return text

    @property
    def has_variants(self) -> bool:
        return not self.cut and "get_input_variants" in self.names

    @property
    def forward(self) -> ast.FunctionDef | None:
        """The statement that defines forward, in `Model` or in a class of the same source from which `Model` inherits it."""
        for owner in self.reach.lineage:
            for item in reversed(owner.body):  # the last definition counts; `@overload` precedes it
                if isinstance(item, ast.FunctionDef) and item.name == "forward":
                    return item
        return None

    @property
    def plain(self) -> bool:
        """Returns whether every argument has a name, because `Model` itself defines forward without `*args` or `**kwargs`."""
        return self.forward is not None and not self.forward.args.vararg and not self.forward.args.kwarg and self.forward in self.model.body

    def arguments(self) -> list[str]:
        """Returns the names of forward's positional arguments except self. Raises `ValueError` if they cannot be read from the source."""
        if self.forward is None:
            raise ValueError("forward is inherited from a class outside of the task's source")
        return [a.arg for a in [*self.forward.args.posonlyargs, *self.forward.args.args]][1:]

    def signature(self, names: list[str]) -> str:
        """Returns the parameters of forward under the given names, with their annotations and defaults as written. The defaults of an inherited
        forward may belong to another scope, so they are omitted."""
        assert self.forward is not None
        forward = self.forward
        returns = f" -> {ast.unparse(forward.returns)}" if forward.returns else ""
        parameters = copy.deepcopy(forward.args)
        if not parameters.posonlyargs and not parameters.args:  # self is the first of `*args`
            parameters.args.append(ast.arg("self"))
        for parameter, name in zip([*parameters.posonlyargs, *parameters.args], ["self", *names], strict=True):
            parameter.arg = name  # "self" may have another name in the source
        return f"({ast.unparse(parameters)}){returns}"

    @cached_property
    def used(self) -> set[str]:
        """The module-level names on which the kept members depend."""
        parts: list[ast.AST] = [*(self.methods[name] for name in self.kept), *self.model.bases, *self.model.keywords, *self.model.decorator_list]
        parts += [item for item in self.model.body if not isinstance(item, ast.FunctionDef)]
        if self.forward is not None:
            arguments = self.forward.args
            parts += [annotation for a in arguments.args if (annotation := a.annotation)]
            parts += [annotation for a in [*arguments.kwonlyargs, arguments.vararg, arguments.kwarg] if a and (annotation := a.annotation)]
            parts += [*arguments.defaults, *filter(None, arguments.kw_defaults), *filter(None, [self.forward.returns])]
        return self.reach.closure([*parts, *self.cut, *self._classes_of_arguments(), *(ast.Name(name, ast.Load()) for name in sorted(self.needed))])

    def _classes_of_arguments(self) -> list[ast.Name]:
        """Returns the classes and uncalled functions named in the task's declarations, because the declared inputs may be instances of them."""
        declared = [item for name in DECLARATIONS if isinstance(item := self.names.get(name), (ast.FunctionDef, ast.Assign, ast.AnnAssign))]
        named = {name for item in declared for name in free_names(item)}
        called = {node.func.id for item in declared for node in ast.walk(item) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
        found = []
        for name in sorted(named):
            maker = self.names.get(name)
            made = maker.value if isinstance(maker, ast.Assign) and isinstance(maker.value, ast.Call) else None
            function = isinstance(maker, ast.FunctionDef) and name not in called
            if isinstance(maker, ast.ClassDef) and maker is not self.model or function or made and ast.unparse(made.func).endswith("namedtuple"):
                found.append(ast.Name(name, ast.Load()))
        return found

    @cached_property
    def kept(self) -> set[str]:
        """The constructor and the methods that it calls on self."""
        kept: set[str] = set()
        waiting = ["__init__"] + (["forward"] if self.keep_forward else [])
        waiting += [name for name in self.methods if name.startswith("__") and name != "__init__" and not is_private(name)]
        waiting += [name for name in self.methods if name.startswith("_load") or name.endswith("_hook")]
        outside = self.reach.lineage[1:]  # the constructor of a base class may call methods that Model defines
        waiting += self._reached([*outside, *self.cut])
        while waiting:
            name = waiting.pop()
            if name in kept or name not in self.methods:
                continue
            kept.add(name)
            waiting += self._reached([self.methods[name]])
        return kept

    def _reached(self, trees: Sequence[ast.AST]) -> list[str]:
        """Returns the methods that `trees` mention as attributes or in strings, or all methods if an attribute name is computed."""
        found = []
        for node in (node for tree in trees for node in ast.walk(tree)):
            if isinstance(node, ast.Attribute) and node.attr in self.methods and node.attr != "forward":
                found.append(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in self.methods and node.value != "forward":
                found.append(node.value)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr" and _computes_name(node):
                found += [name for name in self.methods if name != "forward"]
        return found

    @cached_property
    def bound(self) -> set[str]:
        """The module-level names that the program takes from the task."""
        return {name for item in [*self._kept_imports, *self._kept_definitions] for name in bound_by(item)} | {*self.libraries}

    def imports(self) -> list[str]:
        """Returns the import statements that are still used. `torch` is always included."""
        kept = self._kept_imports
        there = any("torch" in bound_by(item) for item in kept)  # rather than under an alias
        own = {name for item in kept for name in bound_by(item)}
        made = [f"from {home} import {word}" for word, home in self.libraries.items() if word not in own]
        return list(dict.fromkeys([*map(self.text.of, kept), *([] if there else ["import torch"]), *made]))

    def definitions(self) -> list[str]:
        """Returns the helper classes, functions, constants and other statements on which the kept methods depend, in source order."""
        return [self.text.of(item) for item in self._kept_definitions if not self._follows(item)]

    def epilogue(self) -> list[str]:
        """Returns the code after the class: an alias for its old name if other code still uses it, and the statements that need the class when they
        run."""
        after = [item for item in self._kept_definitions if self._follows(item)]
        kept = [self.methods[name] for name in self.kept] + [item for item in self.model.body if not isinstance(item, ast.FunctionDef)]
        named = any(self.reach.names_model(item) for item in [*kept, *self._kept_definitions, *self.cut])
        return [*([f"Model = {NEW_NAME}"] if named else []), *map(self.text.of, after)]

    @cached_property
    def _kept_imports(self) -> list[ast.stmt]:
        found = [item for item in self.tree.body if isinstance(item, (ast.Import, ast.ImportFrom))]
        used = self.used | {"*"}
        return [item for item in found if bound_by(item) & used or isinstance(item, ast.ImportFrom) and item.module == "__future__"]

    @cached_property
    def _kept_definitions(self) -> list[ast.stmt]:
        return [
            item
            for item in self.tree.body
            if item is not self.model
            and not isinstance(item, (ast.Import, ast.ImportFrom))
            and not bound_by(item) & DECLARATIONS
            and (bound_by(item) & self.used or self.reach.changes(item, self.used))
        ]

    def _follows(self, item: ast.stmt) -> bool:
        """Returns whether a statement follows the class definition and needs the class when it runs."""
        if item.lineno < self.model.lineno:
            return False
        if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return any(self.reach.names_model(decorator) for decorator in item.decorator_list)
        return "Model" in self.reach.closure([item])

    def methods_text(self) -> str:
        """Returns the class-level statements and the kept methods of `Model`, as members of `ModelNew`."""
        parts = []
        for item in self.model.body:
            if isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant):
                continue  # the docstring; the program has its own
            if isinstance(item, ast.Pass) or isinstance(item, ast.FunctionDef) and item.name not in self.kept:
                continue
            parts.append(self.text.member(item))
        if self.keep_forward and "forward" not in self.methods:
            parts.append(_INHERITED)
        return "\n\n".join(parts)

    def head(self) -> str:
        """Returns the decorators and the class statement of `ModelNew`."""
        return self.text.head()

    def whole(self) -> list[str]:
        """Returns every statement of the task except its declarations, with `Model` renamed to the program's class."""
        parts = []
        for item in self.tree.body:
            docstring = item is self.tree.body[0] and isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant)
            if item is self.model:
                members = [self.text.member(one) for one in self.model.body]
                parts.append("\n\n".join([f"{self.text.head()}\n{members[0]}", *members[1:]]))
                if any(self.reach.names_model(other) for other in self.tree.body):
                    parts.append(f"Model = {NEW_NAME}")
            elif not docstring and not self.reach.is_script(item) and not (bound_by(item) & DECLARATIONS and not bound_by(item) & self.used):
                parts.append(self.text.of(item))
        return parts


def _computes_name(call: ast.Call) -> bool:
    return len(call.args) > 1 and not isinstance(call.args[1], ast.Constant)
