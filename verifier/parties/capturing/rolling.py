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
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from verifier.graph import Graph, GraphInput, Node
from verifier.parties.capturing.calling import FlatCall
from verifier.parties.capturing.exporting import composed, decomposed
from verifier.parties.capturing.loop_forms import NUMBER, Form, Unlike, filled, form_of, growing, only_indexes
from verifier.parties.capturing.loop_sites import Function, Visit, functions_of, loops_in, replaced, watched
from verifier.parties.capturing.reading import frame_file, read_graph
from verifier.parties.capturing.statements import all_blocks, loaded, stored
from verifier.parties.capturing.tracing import Method, shape_of
from verifier.parties.plain_state import PlainState, source_of
from verifier.task import TensorSpec

logger = logging.getLogger(__name__)

LEAST_PASSES = 24
MOST_LOOPS = 16  # that are captured, each by two exports of a pass
SPACE = "stitch_capture"
NEXT = "next_loop__"
JUMPS = (ast.Break, ast.Continue, ast.Return, ast.Yield, ast.YieldFrom, ast.Global, ast.Nonlocal, ast.Delete)
_numbers = itertools.count(1)


@dataclass
class Loop:
    """One run of a loop. `given`: tensors that a pass reads, by name; `results`: variables that it sets and others read; `kept`: statements that take
    the list of the values of all passes for each variable that is kept. `form`: its passes. `one` and `other`: what the second and third pass were
    captured as."""

    model: torch.nn.Module
    item: ast.For
    form: Form
    given: list[str]
    results: list[str]
    kept: list[str]
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
        return [*found[: len(self.results)], *found[len(self.results) :] * len(self.form.passes)]

    @property
    def text(self) -> str:
        """The statements that stand in its place while forward is exported; the same for all runs of a loop that can be rolled up."""
        first, lines = len(self.results), [ast.unparse(step) for step in self.form.ahead]
        lines.append(f"out__ = loop__([{', '.join(self.given)}])")
        lines += [f"{name} = out__[{at}]" for at, name in enumerate(self.results)]
        lines += [line.format(f"out__[{first + at}::{len(self.kept)}]") for at, line in enumerate(self.kept)]
        if self.form.number != NUMBER:
            lines.append(f"{self.form.number} = {self.form.passes[-1]}")
        return "\n".join(lines)

    def __call__(self, values: list[torch.Tensor]) -> list[torch.Tensor]:
        operator: Any = getattr(getattr(torch.ops, SPACE), f"loop_{self.number}")
        returned: list[torch.Tensor] = operator.default([*values, *(_state(self.model, target) for target in self.state)])
        return returned

    def written_out(self, node: Node, taken: set[str]) -> tuple[list[Node], list[Any]]:
        """The operators of all passes, under names that are not `taken`, and the values that the operator returns."""
        given = [entry.name for entry in self.one.inputs if entry.kind == "user" and entry.spec is not None]
        given += [entry.name for entry in self.one.inputs if entry.kind in ("parameter", "buffer")]
        values: dict[str, Any] = dict(zip(given, node.args[0], strict=True))
        carried = {name: entry.name for entry in self.one.inputs if entry.kind == "user" and (name := self._variable(entry)) in self.results}
        found: list[Node] = []
        kept: list[Any] = []
        for at, number in enumerate(self.form.passes):
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
    """A model whose loops are operators. `order`: the runs of loops that have statements in their place, each with its operator or none, as they
    follow one another."""

    model: torch.nn.Module
    functions: list[Function]
    order: list[tuple[ast.For, Loop | None]]
    waiting: Iterator[tuple[ast.For, Loop | None]] = field(default_factory=lambda: iter(()))

    @property
    def loops(self) -> list[Loop]:
        return [loop for _, loop in self.order if loop is not None]

    def forward(self) -> Callable[..., Any]:
        """The model's forward as it is now, which begins with the first loop at every call."""
        own = self.model.forward

        @functools.wraps(own)
        def begun(*args: Any, **kwargs: Any) -> Any:
            self.waiting = iter(self.order)
            return own(*args, **kwargs)

        return begun

    @contextlib.contextmanager
    def named(self) -> Iterator[None]:
        """Meanwhile the loops are operators, which an exporter can call."""
        library = torch.library.Library(SPACE, "FRAGMENT")
        for loop in self.loops:
            library.define(f"loop_{loop.number}(Tensor[] values) -> Tensor[]")
            torch.library.register_fake(f"{SPACE}::loop_{loop.number}", functools.partial(_empty, loop.specs()), lib=library)

        def following(key: int) -> Loop | None:
            item, loop = next(self.waiting, (None, None))
            if id(item) != key:
                raise Unlike("the loops run in another order")
            return loop

        names, texts = source_of(self.model), {id(item): (item, loop.text) for item, loop in self.order if loop is not None}
        others: dict[int, Callable[..., Any]] = {}
        for at, function in enumerate(self.functions):
            tree = copy.deepcopy(function.tree)
            pairs = [(item, twin) for item, twin in zip(loops_in(function.tree), loops_in(tree), strict=True) if id(item) in texts]
            for item, twin in pairs:
                block, place = next((block, n) for block in all_blocks(tree.body) for n, one in enumerate(block) if one is twin)
                block[place : place + 1] = _either(twin, id(item), texts[id(item)][1])
            if pairs:
                others[at] = function.made(tree, frame_file(self.model))
        names[NEXT] = following
        try:
            with replaced(others, self.functions):
                yield
        finally:
            del names[NEXT]
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
    """Null where no function of the task's source runs a loop that is worth it."""
    functions = functions_of(model, source)
    if not functions:
        return None
    visits = watched(model, functions, args, kwargs, plain, frame_file(model))
    found: dict[int, tuple[Visit, Loop]] = {}
    _choose(visits, plain, found, set())
    if not found:
        return None
    texts: dict[int, set[str]] = {}
    for visit, loop in found.values():
        texts.setdefault(id(visit.item), set()).add(loop.text)
    chosen = {key: loop for key, (visit, loop) in found.items() if len(texts[id(visit.item)]) == 1}
    sites = {id(loop.item) for loop in chosen.values()}
    order = list(_in_order(visits, chosen, sites))
    return Rolled(model, functions, order) if chosen else None


def _choose(visits: list[Visit], plain: PlainState, found: dict[int, tuple[Visit, Loop]], unlike: set[int]) -> None:
    """Captures the passes of runs of loops, and where they are not alike, those of the loops within."""
    for visit in visits:
        if id(visit.item) not in unlike and len(found) < MOST_LOOPS:
            try:
                found[id(visit)] = visit, _loop(visit, plain)
                continue
            except Exception:  # an exporter raises anything; the loop is exported pass by pass
                logger.debug("a loop was not rolled up", exc_info=True)
                plain.restore()
                unlike.add(id(visit.item))
        _choose(visit.inner, plain, found, unlike)


def _in_order(visits: list[Visit], chosen: dict[int, Loop], sites: set[int]) -> Iterator[tuple[ast.For, Loop | None]]:
    for visit in visits:
        loop = chosen.get(id(visit))
        if id(visit.item) in sites:
            yield visit.item, loop
        if loop is None:
            yield from _in_order(visit.inner, chosen, sites)


def _either(item: ast.For, key: int, text: str) -> list[ast.stmt]:
    """The loop as it is where it has no operator, else the statements of `text`; all of them on the line of the loop."""
    lines = "\n".join(f"    {line}" for line in text.splitlines())
    made = ast.parse(f"loop__ = {NEXT}({key})\nif loop__ is not None:\n{lines}\nelse:\n    pass\n").body
    for statement in made:
        for node in ast.walk(statement):
            if "lineno" in node._attributes:
                node.lineno = node.end_lineno = item.lineno  # type: ignore[attr-defined]
    assert isinstance(made[1], ast.If)
    made[1].orelse = [item]
    return made


def _loop(visit: Visit, plain: PlainState) -> Loop:
    """Raises `Unlike`, or whatever an export raises."""
    item, method, before, visits = visit.item, visit.function.method, dict(visit.before), visit.passes
    if len(visits) < 2 or item.orelse or any(isinstance(node, (*JUMPS, ast.FunctionDef)) for one in item.body for node in ast.walk(one)):
        raise Unlike("it has another form, or may end early")
    form = form_of(item, method.names, before)
    before |= form.over
    if len(form.passes) < LEAST_PASSES:
        raise Unlike("it is short")
    lists = growing(form.body, before)
    places = filled(form.body, form.number, form.passes, before)
    inside = {id(node) for node in ast.walk(item)}
    elsewhere = {node.id for node in ast.walk(visit.function.tree) if isinstance(node, ast.Name) and id(node) not in inside}
    if not only_indexes(form.body, form.number):
        raise Unlike("the number of the pass is used for more than an index")
    names = [name for name in sorted(loaded(form.body)) if name in before and name != form.number]
    for name in names:
        if name not in form.over and any(shape_of(seen[name]) != shape_of(before[name]) for seen in visits):
            raise Unlike(f"{name} has another size or value in each pass")
    given = [name for name in names if isinstance(before[name], torch.Tensor)]
    if any(_meet(before[name], before[out]) for name in given for out in places):
        raise Unlike("a tensor is filled that a pass reads")
    kept = [*lists.values(), *(place.kept for place in places.values())]
    results = [name for name in sorted(stored(form.body)) if name in given or name in elsewhere and name not in kept]
    if any(name in names and name not in given for name in results):
        raise Unlike("a plain value changes from pass to pass")
    if not results and not kept:
        raise Unlike("nothing comes of it")
    fixed = {name: before[name] for name in names if name not in given}
    one, other = (_pass(method, item, form, number, given, fixed, [*results, *kept], before, plain) for number in form.passes[1:3])
    _alike(one, other)
    texts = [*(f"{name} += list({{}})" for name in lists), *(place.text for place in places.values())]
    found = Loop(method.model, item, form, given, results, texts, one, other)
    specs = found.specs()[len(results) + len(lists) : len(results) + len(kept)]
    if any((spec.shape, spec.dtype) != (place.shape, str(place.dtype)[6:]) for spec, place in zip(specs, places.values(), strict=True)):
        raise Unlike("a tensor is filled with values of another size or type")
    return found


def _meet(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def _pass(
    method: Method, item: ast.For, form: Form, number: int, given: list[str], fixed: dict[str, Any], returned: list[str], before: dict[str, Any],
    plain: PlainState,
) -> Graph:  # fmt: skip
    """One pass as a graph of the tensors `given`, which returns a tuple."""
    values = ast.Tuple([ast.Name(name, ast.Load()) for name in returned], ast.Load())
    parameters = [ast.arg(name) for name in (*given, form.number, *fixed)]
    end = ast.copy_location(ast.Return(values), item)
    tree = ast.FunctionDef("part", ast.arguments([], parameters, None, [], [], None, []), [*copy.deepcopy(form.body), end], [])
    function = method.compiled(ast.fix_missing_locations(ast.copy_location(tree, item)), frame_file(method.model))
    tensors = tuple(before[name] for name in given)
    call = FlatCall(lambda *values: function(*values, number, *fixed.values()), tensors, {}, type(method.model).__module__)
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
