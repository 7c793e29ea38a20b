"""Loops of forward whose passes are alike: one pass is captured and written out for all, where exporting each would take minutes.

In the exported forward such a loop is one operator, of which only the sizes are known. A pass may use its number as an index, plus or minus a
constant; what two passes were captured as then tells all others. Anything else is exported pass by pass.
"""

# sandboxed: exports parts of the models that tasks define

from __future__ import annotations

import ast
import contextlib
import copy
import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from verifier.graph import Graph, GraphInput, Node
from verifier.parties.capturing.calling import FlatCall
from verifier.parties.capturing.exporting import composed, decomposed
from verifier.parties.capturing.reading import frame_file, read_graph
from verifier.parties.capturing.statements import loaded, stored
from verifier.parties.capturing.tracing import Method, Trace, method_of, observed, shape_of
from verifier.parties.plain_state import PlainState
from verifier.task import TensorSpec

LEAST_PASSES = 24
SPACE = "stitch_capture"
AFFINE = (ast.Constant, ast.BinOp, ast.Add, ast.Sub, ast.UnaryOp, ast.USub, ast.Slice, ast.Tuple, ast.Name, ast.Load)
JUMPS = (ast.Break, ast.Continue, ast.Return, ast.Yield, ast.YieldFrom, ast.Global, ast.Nonlocal, ast.Delete)
_numbers = itertools.count(1)


class Unlike(ValueError):
    """The passes of a loop cannot be told from two of them."""


@dataclass
class Loop:
    """`given`: tensors that a pass reads, by name; `results`: variables that it sets and others read; `kept`: lists that grow by one value a pass,
    with the variables of those. `passes`: the number of each. `one` and `other`: what the first two passes were captured as."""

    item: ast.For
    passes: list[int]
    given: list[str]
    results: list[str]
    kept: dict[str, str]
    one: Graph
    other: Graph
    number: int = field(default_factory=lambda: next(_numbers))

    @property
    def operator(self) -> str:
        return f"{SPACE}.loop_{self.number}.default"

    @property
    def state(self) -> list[str]:
        """Parameters and buffers that a pass reads."""
        return [entry.target for entry in self.one.inputs if entry.kind in ("parameter", "buffer")]

    def specs(self) -> list[TensorSpec]:
        """Describes what the operator returns: the results, then what each pass keeps."""
        known = {node.name: node.outputs[0] for node in self.one.nodes if node.outputs} | {e.name: e.spec for e in self.one.inputs if e.spec}
        found = [known[leaf["ref"]] for leaf in self.one.outputs]
        return [*found[: len(self.results)], *found[len(self.results) :] * len(self.passes)]

    def statements(self) -> list[ast.stmt]:
        """What stands in place of the loop while forward is exported."""
        values = [*self.given, *(f"__state__(self, {target!r})" for target in self.state)]
        out, first = f"__out_{self.number}", len(self.results)
        lines = [f"{out} = __loop_{self.number}__([{', '.join(values)}])"]
        lines += [f"{name} = {out}[{at}]" for at, name in enumerate(self.results)]
        lines += [f"{name} = list({out}[{first + at}::{len(self.kept)}])" for at, name in enumerate(self.kept)]
        made = ast.parse("\n".join(lines)).body
        for statement in made:
            for node in ast.walk(statement):
                if "lineno" in node._attributes:
                    node.lineno = node.end_lineno = self.item.lineno  # type: ignore[attr-defined]
        return made

    def written_out(self, node: Node, taken: set[str]) -> tuple[list[Node], list[Any]]:
        """The operators of all passes, under names that are not `taken`, and the values that the operator returns."""
        given = [entry.name for entry in self.one.inputs if entry.kind == "user" and entry.spec is not None]
        given += [entry.name for entry in self.one.inputs if entry.kind in ("parameter", "buffer")]
        values: dict[str, Any] = dict(zip(given, node.args[0], strict=True))
        carried = {name: entry.name for entry in self.one.inputs if entry.kind == "user" and (name := self._variable(entry)) in self.results}
        found: list[Node] = []
        kept: list[Any] = []
        for at, number in enumerate(self.passes):
            here = dict(values)
            for one, other in zip(self.one.nodes, self.other.nodes, strict=True):
                name = _free(f"{one.name}_{number}", taken)
                args = _renamed(_at(one.args, other.args, at - 1), here)
                kwargs = {key: _renamed(_at(value, other.kwargs[key], at - 1), here) for key, value in one.kwargs.items()}
                found.append(one.model_copy(update={"name": name, "args": args, "kwargs": kwargs}))
                here[one.name] = {"ref": name}
            leaves = [here[leaf["ref"]] for leaf in self.one.outputs]
            kept += leaves[len(self.results) :]
            values |= {carried[name]: leaf for name, leaf in zip(self.results, leaves, strict=False) if name in carried}
        return found, [*leaves[: len(self.results)], *kept]

    def _variable(self, entry: GraphInput) -> str:
        return self.given[entry.position] if entry.spec is not None else ""


@dataclass
class Rolled:
    """`forward`: the task's, with an operator in place of each of `loops`."""

    method: Method
    loops: list[Loop]
    forward: Callable[..., Any]

    @contextlib.contextmanager
    def named(self) -> Iterator[None]:
        """Meanwhile the forward can be called by an exporter."""
        library = torch.library.Library(SPACE, "FRAGMENT")
        names: dict[str, Any] = {"__state__": _state}
        for loop in self.loops:
            library.define(f"loop_{loop.number}(Tensor[] values) -> Tensor[]")
            torch.library.register_fake(f"{SPACE}::loop_{loop.number}", functools.partial(_empty, loop.specs()), lib=library)
            names[f"__loop_{loop.number}__"] = getattr(getattr(torch.ops, SPACE), f"loop_{loop.number}").default
        self.method.names.update(names)
        try:
            yield
        finally:
            for name in names:
                del self.method.names[name]
            library._destroy()

    def written_out(self, graph: Graph) -> Graph:
        """The graph of `forward` with all passes of its loops."""
        taken = {entry.name for entry in graph.inputs} | {node.name for node in graph.nodes}
        by_operator = {loop.operator: loop for loop in self.loops}
        of: dict[str, list[Any]] = {}  # what each operator returns
        instead: dict[str, Any] = {}
        nodes: list[Node] = []
        for node in graph.nodes:
            if node.op == "getitem" and node.args[0]["ref"] in of:
                instead[node.name] = of[node.args[0]["ref"]][node.args[1]]
                continue
            args, kwargs = _renamed(node.args, instead), {key: _renamed(value, instead) for key, value in node.kwargs.items()}
            node = node.model_copy(update={"args": args, "kwargs": kwargs})
            if node.op in by_operator:
                made, of[node.name] = by_operator[node.op].written_out(node, taken)
                nodes += made
            else:
                nodes.append(node)

        def final(name: str) -> str:
            found: str = instead.get(name, {"ref": name})["ref"]
            return found

        return graph.model_copy(
            update={
                "nodes": nodes,
                "outputs": [_renamed(leaf, instead) for leaf in graph.outputs],
                "mutations": {target: final(name) for target, name in graph.mutations.items()},
                "mutated_inputs": {source: final(name) for source, name in graph.mutated_inputs.items()},
            }
        )


def rolled(model: torch.nn.Module, source: str, args: tuple[Any, ...], kwargs: dict[str, Any], plain: PlainState) -> Rolled | None:
    """Null where forward has no loop that is worth it."""
    method = method_of(model, source)
    if method is None or not any(isinstance(item, ast.For) for item in method.tree.body):
        return None
    trace = observed(method, method.tree, args, kwargs, plain, torch.Tensor.clone)
    loops = []
    for item in method.tree.body:
        if isinstance(item, ast.For):
            with contextlib.suppress(Unlike):
                loops.append(_loop(method, item, trace, plain))
    if not loops:
        return None
    tree = copy.deepcopy(method.tree)
    for loop in reversed(loops):
        at = method.tree.body.index(loop.item)
        tree.body[at : at + 1] = loop.statements()
    function = method.compiled(ast.fix_missing_locations(tree), frame_file(model))
    return Rolled(method, loops, functools.partial(function, model))


def _loop(method: Method, item: ast.For, trace: Trace, plain: PlainState) -> Loop:
    """Raises `Unlike`, or whatever an export raises."""
    before, visits = trace.at(item), trace.visits.get(id(item.body[0]), [])
    if before is None or len(visits) < 2 or item.orelse or not isinstance(item.target, ast.Name):
        raise Unlike("it has another form")
    variable, passes, body = _passes(method, item, before)
    if len(passes) < LEAST_PASSES or any(isinstance(node, (*JUMPS, ast.FunctionDef)) for one in body for node in ast.walk(one)):
        raise Unlike("it is short, or may end early")
    kept = _growing(body, before)
    elsewhere = {node.id for one in method.tree.body if one is not item for node in ast.walk(one) if isinstance(node, ast.Name)}
    if variable in elsewhere or not _only_indexes(body, variable):
        raise Unlike("the number of the pass is used for more than an index")
    names = [name for name in sorted(loaded(body)) if name in before and name not in (variable, "self")]
    for name in names:
        if any(shape_of(visit[name]) != shape_of(before[name]) for visit in visits):
            raise Unlike(f"{name} has another size or value in each pass")
    given = [name for name in names if isinstance(before[name], torch.Tensor)]
    results = [name for name in sorted(stored(body)) if name in given or name in elsewhere and name not in kept.values()]
    if any(name in names and name not in given for name in results):
        raise Unlike("a plain value changes from pass to pass")
    if not results and not kept:
        raise Unlike("nothing comes of it")
    fixed = {name: before[name] for name in names if name not in given}
    returned = [*results, *kept.values()]
    one, other = (_pass(method, item, body, variable, number, given, fixed, returned, before, plain) for number in passes[1:3])
    _alike(one, other)
    return Loop(item, passes, given, results, kept, one, other)


def _passes(method: Method, item: ast.For, before: dict[str, Any]) -> tuple[str, list[int], list[ast.stmt]]:
    """The variable that counts, its values, and the statements of a pass."""
    assert isinstance(item.target, ast.Name)
    body = copy.deepcopy(item.body)
    if isinstance(item.iter, ast.Call) and isinstance(item.iter.func, ast.Name) and item.iter.func.id == "range":
        tree = ast.fix_missing_locations(ast.Expression(copy.deepcopy(item.iter)))
        return item.target.id, list(eval(compile(tree, "<loop>", "eval"), method.names, before)), body
    if isinstance(item.iter, ast.Name) and isinstance(over := before.get(item.iter.id), torch.Tensor) and over.dim():
        step = ast.copy_location(ast.parse(f"{item.target.id} = {item.iter.id}[__pass]").body[0], item)
        return "__pass", list(range(over.shape[0])), [ast.fix_missing_locations(step), *body]
    raise Unlike("it goes over something else than numbers or a tensor")


def _growing(body: list[ast.stmt], before: dict[str, Any]) -> dict[str, str]:
    """Empty lists that each pass appends one value to: the statement becomes one that sets a variable, which is told for each list."""
    found: dict[str, str] = {}
    for at, one in enumerate(body):
        call = one.value if isinstance(one, ast.Expr) else None
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr != "append" or len(call.args) != 1:
            continue
        owner = call.func.value
        if isinstance(owner, ast.Name) and before.get(owner.id) == [] and owner.id not in found:
            found[owner.id] = f"__kept_{owner.id}"
            target = ast.Name(found[owner.id], ast.Store())
            body[at] = ast.fix_missing_locations(ast.copy_location(ast.Assign([target], call.args[0]), one))
    if any(isinstance(node, ast.Name) and node.id in found for one in body for node in ast.walk(one)):
        raise Unlike("a list that grows is read in the loop")
    return found


def _only_indexes(body: list[ast.stmt], variable: str) -> bool:
    """Whether the number of a pass is read within indices alone, of which it is a term."""
    uses = sum(isinstance(node, ast.Name) and node.id == variable for one in body for node in ast.walk(one))
    for one in body:
        for index in (node.slice for node in ast.walk(one) if isinstance(node, ast.Subscript)):
            for part in index.elts if isinstance(index, ast.Tuple) else [index]:
                inner = list(ast.walk(part))
                names = [node.id for node in inner if isinstance(node, ast.Name)]
                if variable in names and set(names) == {variable} and all(isinstance(node, AFFINE) for node in inner):
                    uses -= names.count(variable)
    return uses == 0


def _pass(
    method: Method, item: ast.For, body: list[ast.stmt], variable: str, number: int, given: list[str], fixed: dict[str, Any], returned: list[str],
    before: dict[str, Any], plain: PlainState,
) -> Graph:  # fmt: skip
    """One pass as a graph of the tensors `given`, which returns a tuple."""
    values = ast.Tuple([ast.Name(name, ast.Load()) for name in returned], ast.Load())
    parameters = [ast.arg(name) for name in ("self", *given, variable, *fixed)]
    end = ast.copy_location(ast.Return(values), item)
    tree = ast.FunctionDef("part", ast.arguments([], parameters, None, [], [], None, []), [*copy.deepcopy(body), end], [])
    function = method.compiled(ast.fix_missing_locations(ast.copy_location(tree, item)), frame_file(method.model))
    bound = functools.partial(function, method.model)
    tensors = tuple(before[name] for name in given)
    call = FlatCall(lambda *values: bound(*values, number, *fixed.values()), tensors, {}, type(method.model).__module__)
    changed: set[str] = set()
    call.after = lambda: changed.update(plain.changed())
    graph = read_graph(decomposed(composed(method.model, call)), call, method.model, frame_file(method.model))
    plain.restore()
    whole = all(isinstance(leaf, dict) and "ref" in leaf for leaf in graph.outputs) and len(graph.outputs) == len(returned)
    if changed or graph.mutations or graph.mutated_inputs or not whole or any(entry.kind == "constant" for entry in graph.inputs):
        raise Unlike("a pass changes something in place, or returns something else than tensors")
    return graph


def _alike(one: Graph, other: Graph) -> None:
    """Raises `Unlike` where two passes differ by more than the indices that they read at."""
    same = [(n.name, n.op, n.outputs) for n in one.nodes] == [(n.name, n.op, n.outputs) for n in other.nodes]
    if not same or one.outputs != other.outputs or [(e.name, e.target) for e in one.inputs] != [(e.name, e.target) for e in other.inputs]:
        raise Unlike("its passes are not alike")
    for a, b in zip(one.nodes, other.nodes, strict=True):
        _at(a.args, b.args, 0)
        for key, value in a.kwargs.items():
            _at(value, b.kwargs[key], 0)


def _at(one: Any, other: Any, steps: int) -> Any:
    """An argument `steps` passes after the one that has it as `one`; the pass behind that has it as `other`."""
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [_at(a, b, steps) for a, b in zip(one, other, strict=True)]
    if one == other:
        return one
    if type(one) is int and type(other) is int:
        return one + steps * (other - one)
    raise Unlike("its passes differ by more than an index")


def _renamed(value: Any, names: dict[str, Any]) -> Any:
    if isinstance(value, dict):
        return names.get(value["ref"], value) if "ref" in value else value
    return [_renamed(item, names) for item in value] if isinstance(value, list) else value


def _free(name: str, taken: set[str]) -> str:
    found = next(text for text in itertools.chain([name], (f"{name}_of_{n}" for n in itertools.count(2))) if text not in taken)
    taken.add(found)
    return found


def _state(model: torch.nn.Module, target: str) -> torch.Tensor:
    owner: Any = model
    for part in target.split("."):
        owner = getattr(owner, part)
    found: torch.Tensor = owner
    return found


def _empty(specs: list[TensorSpec], values: list[torch.Tensor]) -> list[torch.Tensor]:
    device = values[0].device if values else None
    found = []
    for spec in specs:
        dtype = getattr(torch, spec.dtype)
        if spec.stride is None:
            found.append(torch.empty(spec.shape, dtype=dtype, device=device))
        else:
            found.append(torch.empty_strided(spec.shape, spec.stride, dtype=dtype, device=device))
    return found
