"""Rolls up loops of forward with similar passes: two passes are captured and written out for all passes, because exporting every pass would take
minutes.

In the exported forward, such a loop is a single operator whose result sizes are known. A pass may use its number, plus or minus a constant, as an
index, so that all other passes can be derived from two captured ones. Any other loop is exported pass by pass.
"""

# sandboxed: exports parts of the models that tasks define

from __future__ import annotations

import ast
import contextlib
import copy
import functools
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from verifier.graph import Graph, GraphInput, Node
from verifier.parties.capturing.calling import FlatCall
from verifier.parties.capturing.expert_sources import without_unread
from verifier.parties.capturing.experts import Experts, experts_of
from verifier.parties.capturing.exporting.export import composed, decomposed
from verifier.parties.capturing.loop_forms import NUMBER, Form, filled, form_of, growing, only_indexes
from verifier.parties.capturing.loop_nodes import SPACE, LoopRefused, Unlike, at_pass, empty_results, free_name, numbers, renamed, state_of
from verifier.parties.capturing.loop_sites import Function, Visit, functions_of, loops_in, replaced, routes, tables_of, watched
from verifier.parties.capturing.reading import frame_file, read_graph
from verifier.parties.capturing.reasons import reason
from verifier.parties.capturing.statements import all_blocks, loaded, stored
from verifier.parties.capturing.tracing import Method, shape_of
from verifier.parties.plain_state import PlainState
from verifier.task import TensorSpec

logger = logging.getLogger(__name__)

LEAST_PASSES = 24
MOST_LOOPS = 16  # maximum number of loops that are captured, each by exporting two passes
NEXT = "next_loop__"
JUMPS = (ast.Break, ast.Continue, ast.Return, ast.Yield, ast.YieldFrom, ast.Global, ast.Nonlocal, ast.Delete)


@dataclass
class Loop:
    """One run of a loop. `given` names the tensors that a pass reads, and `results` the variables that it sets and that are read elsewhere. `kept`
    holds, for each value that all passes keep, the statement that takes the list of these values. `one` and `other` are the captures of the second
    and third passes."""

    model: torch.nn.Module
    item: ast.For
    form: Form
    given: list[str]
    results: list[str]
    kept: list[str]
    one: Graph
    other: Graph
    place: tuple[str, int] = ("", 0)  # file and line
    number: int = field(default_factory=lambda: next(numbers))

    @property
    def operator(self) -> str:
        return f"{SPACE}.loop_{self.number}.default"

    @property
    def state(self) -> list[str]:
        """Parameters and buffers that a pass reads."""
        return [entry.target for entry in self.one.inputs if entry.kind in ("parameter", "buffer")]

    def specs(self) -> list[TensorSpec]:
        """Describes the operator's return values: the results, followed by the values that each pass keeps."""
        known = {node.name: node.outputs[0] for node in self.one.nodes if node.outputs} | {e.name: e.spec for e in self.one.inputs if e.spec}
        found = [known[leaf["ref"]] for leaf in self.one.outputs]
        return [*found[: len(self.results)], *found[len(self.results) :] * len(self.form.passes)]

    @property
    def text(self) -> str:
        """Returns the statements that replace the loop during the export. They are the same for all runs of a loop that is rolled up."""
        first, lines = len(self.results), [ast.unparse(step) for step in self.form.ahead]
        lines.append(f"out__ = loop__([{', '.join(self.given)}])")
        lines += [f"{name} = out__[{at}]" for at, name in enumerate(self.results)]
        lines += [line.format(f"out__[{first + at}::{len(self.kept)}]") for at, line in enumerate(self.kept)]
        if self.form.number != NUMBER:
            lines.append(f"{self.form.number} = {self.form.passes[-1]}")
        return "\n".join(lines)

    def __call__(self, values: list[torch.Tensor]) -> list[torch.Tensor]:
        operator: Any = getattr(getattr(torch.ops, SPACE), f"loop_{self.number}")
        returned: list[torch.Tensor] = operator.default([*values, *(state_of(self.model, target) for target in self.state)])
        return returned

    def written_out(
        self, node: Node, taken: set[str], known: Callable[[str], Node | None], spec: Callable[[str], TensorSpec]
    ) -> tuple[list[Node], list[Any]]:
        """Returns the operators of all passes, under names that are not in `taken`, and the values that the operator returns."""
        given = [entry.name for entry in self.one.inputs if entry.kind == "user" and entry.spec is not None]
        given += [entry.name for entry in self.one.inputs if entry.kind in ("parameter", "buffer")]
        values: dict[str, Any] = dict(zip(given, node.args[0], strict=True))
        carried = {name: entry.name for entry in self.one.inputs if entry.kind == "user" and (name := self._variable(entry)) in self.results}
        found: list[Node] = []
        kept: list[Any] = []
        for at, number in enumerate(self.form.passes):
            here = dict(values)
            for one, other in zip(self.one.nodes, self.other.nodes, strict=True):
                name = free_name(f"{one.name}_{number}", taken)
                args = renamed(at_pass(one.args, other.args, at - 1), here)
                kwargs = {key: renamed(at_pass(value, other.kwargs[key], at - 1), here) for key, value in one.kwargs.items()}
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
    """A model whose loops are operators. `order` lists the runs of loops that have replacement statements, in execution order, each with its
    operator, if any."""

    model: torch.nn.Module
    functions: list[Function]
    order: list[tuple[ast.For, Loop | Experts | None]]
    waiting: Iterator[tuple[ast.For, Loop | Experts | None]] = field(default_factory=lambda: iter(()))

    @property
    def loops(self) -> list[Loop | Experts]:
        return [loop for _, loop in self.order if loop is not None]

    def forward(self) -> Callable[..., Any]:
        """Returns the model's current forward, wrapped so that each call starts with the first loop in `order`."""
        own = self.model.forward

        @functools.wraps(own)
        def begun(*args: Any, **kwargs: Any) -> Any:
            self.waiting = iter(self.order)
            return own(*args, **kwargs)

        return begun

    @contextlib.contextmanager
    def named(self) -> Iterator[None]:
        """Registers the loops as operators that an exporter can call while the context is open."""
        library = torch.library.Library(SPACE, "FRAGMENT")
        for loop in self.loops:
            library.define(f"loop_{loop.number}(Tensor[] values) -> Tensor[]")
            torch.library.register_fake(f"{SPACE}::loop_{loop.number}", functools.partial(empty_results, loop.specs()), lib=library)

        def following(key: int) -> Loop | Experts | None:
            item, loop = next(self.waiting, (None, None))
            if id(item) != key:
                raise Unlike("the loops run in another order")
            return loop

        tables, texts = tables_of(self.functions), {id(item): (item, loop.text) for item, loop in self.order if loop is not None}
        others: dict[int, Callable[..., Any]] = {}
        for at, function in enumerate(self.functions):
            tree = copy.deepcopy(function.tree)
            pairs = [(item, twin) for item, twin in zip(loops_in(function.tree), loops_in(tree), strict=True) if id(item) in texts]
            open_loops = {id(item) for item, loop in self.order if loop is None}
            if pairs and not any(id(item) in open_loops for item, _ in pairs):
                without_unread(tree, [twin for _, twin in pairs], {name for loop in self.loops for name in loop.given})
            for item, twin in pairs:
                block, place = next((block, n) for block in all_blocks(tree.body) for n, one in enumerate(block) if one is twin)
                block[place : place + 1] = _either(twin, id(item), texts[id(item)][1])
            if pairs:
                others[at] = function.made(tree)
        for names in tables:
            names[NEXT] = following
        try:
            with replaced(others, self.functions):
                yield
        finally:
            for names in tables:
                del names[NEXT]
            library._destroy()

    def written_out(self, graph: Graph) -> Graph:
        """Returns the graph of `forward` with all passes of its loops."""
        taken = {entry.name for entry in graph.inputs} | {node.name for node in graph.nodes}
        by_operator = {loop.operator: loop for loop in self.loops}
        of: dict[str, list[Any]] = {}  # operator node -> the values that it returns
        instead: dict[str, Any] = {}
        nodes: list[Node] = []
        known: dict[str, Node] = {}
        given = {entry.name: entry.tensor for entry in graph.inputs if entry.spec is not None}

        def spec(name: str) -> TensorSpec:
            return given[name] if name in given else known[name].outputs[0]

        for node in graph.nodes:
            if node.op == "getitem" and node.args[0]["ref"] in of:
                instead[node.name] = of[node.args[0]["ref"]][node.args[1]]
                continue
            args, kwargs = renamed(node.args, instead), {key: renamed(value, instead) for key, value in node.kwargs.items()}
            node = node.model_copy(update={"args": args, "kwargs": kwargs})
            if node.op in by_operator:
                loop = by_operator[node.op]
                try:
                    made, of[node.name] = loop.written_out(node, taken, known.get, spec)
                except Unlike as error:
                    raise LoopRefused(str(error), loop.place) from error
                known |= {one.name: one for one in made}
                nodes += made
            else:
                nodes.append(node)
                known[node.name] = node

        def final(name: str) -> str:
            found: str = instead.get(name, {"ref": name})["ref"]
            return found

        return graph.model_copy(
            update={
                "nodes": nodes,
                "outputs": [renamed(leaf, instead) for leaf in graph.outputs],
                "mutations": {target: final(name) for target, name in graph.mutations.items()},
                "mutated_inputs": {source: final(name) for source, name in graph.mutated_inputs.items()},
            }
        )


def rolled(
    model: torch.nn.Module,
    source: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    plain: PlainState,
    refused: dict[tuple[str, int], str] | None = None,
) -> Rolled | None:
    """Returns the model with its loops as operators, or None if no function runs a loop that can be rolled up. `refused` maps the file and line of
    loops that may iterate over experts but cannot be handled to the reason; loops that it already lists are skipped."""
    functions = functions_of(model, source)
    if not functions:
        return None
    visits = watched(model, functions, args, kwargs, plain)
    found: dict[int, tuple[Visit, Loop | Experts]] = {}
    _choose(visits, plain, found, set(), {} if refused is None else refused)
    if not found:
        return None
    texts: dict[int, set[str]] = {}
    for visit, loop in found.values():
        texts.setdefault(id(visit.item), set()).add(loop.text)
    chosen = {key: loop for key, (visit, loop) in found.items() if len(texts[id(visit.item)]) == 1}
    sites = {id(loop.item) for loop in chosen.values()}
    order = list(_in_order(visits, chosen, sites))
    return Rolled(model, functions, order) if chosen else None


def _choose(
    visits: list[Visit], plain: PlainState, found: dict[int, tuple[Visit, Loop | Experts]], unlike: set[int], refused: dict[tuple[str, int], str]
) -> None:
    """Captures loop runs. If the passes of a run differ too much, captures its inner loops instead."""
    for visit in visits:
        makers: list[Callable[[Visit, PlainState], Loop | Experts]] = [_loop, *([experts_of] if routes(visit.item) else [])]
        for make in makers:
            if id(visit.item) in unlike or id(visit) in found or len(found) >= MOST_LOOPS or make is experts_of and visit.place in refused:
                break
            try:
                found[id(visit)] = visit, make(visit, plain)
            except Exception as error:  # an exporter may raise anything; the loop is then exported pass by pass
                logger.debug("a loop was not rolled up", exc_info=True)
                plain.restore()
                if make is experts_of:
                    refused[visit.place] = reason(error)
        if id(visit) not in found:
            unlike.add(id(visit.item))
            _choose(visit.inner, plain, found, unlike, refused)


def _in_order(visits: list[Visit], chosen: dict[int, Loop | Experts], sites: set[int]) -> Iterator[tuple[ast.For, Loop | Experts | None]]:
    for visit in visits:
        loop = chosen.get(id(visit))
        if id(visit.item) in sites:
            yield visit.item, loop
        if loop is None:
            yield from _in_order(visit.inner, chosen, sites)


def _either(item: ast.For, key: int, text: str) -> list[ast.stmt]:
    """Returns statements that run `text` if the loop has an operator in this run, and otherwise the unchanged loop. All of them get the line number
    of the loop."""
    lines = "\n".join(f"    {line}" for line in text.splitlines())
    made = ast.parse(f"loop__ = {NEXT}({key})\nif loop__ is not None:\n{lines}\nelse:\n    pass\n").body
    for statement in made:
        for node in ast.walk(statement):
            if "lineno" in node._attributes:
                node.lineno = node.end_lineno = item.lineno  # type: ignore[attr-defined]  # these nodes have a place
    assert isinstance(made[1], ast.If)
    made[1].orelse = [item]
    return made


def _loop(visit: Visit, plain: PlainState) -> Loop:
    """Captures a loop. Raises `Unlike`, or any exception that an export raises."""
    item, method, before, visits = visit.item, visit.function.method, dict(visit.before), visit.passes
    if len(visits) < 2 or item.orelse or any(isinstance(node, (*JUMPS, ast.FunctionDef)) for one in item.body for node in ast.walk(one)):
        raise Unlike("it has an unsupported form, or may end early")
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
            raise Unlike(f"{name} has a different size or value in each pass")
    given = [name for name in names if isinstance(before[name], torch.Tensor)]
    if any(_meet(before[name], before[out]) for name in given for out in places):
        raise Unlike("a pass reads a tensor that the loop fills")
    kept = [*lists.values(), *(place.kept for place in places.values())]
    results = [name for name in sorted(stored(form.body)) if name in given or name in elsewhere and name not in kept]
    if any(name in names and name not in given for name in results):
        raise Unlike("a non-tensor value changes from pass to pass")
    if not results and not kept:
        raise Unlike("nothing comes of it")
    fixed = {name: before[name] for name in names if name not in given}
    one, other = (_pass(method, item, form, number, given, fixed, [*results, *kept], before, plain) for number in form.passes[1:3])
    _alike(one, other)
    texts = [*(f"{name} += list({{}})" for name in lists), *(place.text for place in places.values())]
    found = Loop(method.model, item, form, given, results, texts, one, other)
    specs = found.specs()[len(results) + len(lists) : len(results) + len(kept)]
    if any((spec.shape, spec.dtype) != (place.shape, str(place.dtype)[6:]) for spec, place in zip(specs, places.values(), strict=True)):
        raise Unlike("a tensor is filled with values of a different size or type")
    return found


def _meet(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def _pass(
    method: Method, item: ast.For, form: Form, number: int, given: list[str], fixed: dict[str, Any], returned: list[str], before: dict[str, Any],
    plain: PlainState,
) -> Graph:  # fmt: skip
    """Captures one pass as a graph that takes the tensors `given` and returns a tuple."""
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
        raise Unlike("a pass changes something in place, or returns something other than tensors")
    return graph


def _alike(one: Graph, other: Graph) -> None:
    """Raises `Unlike` if two passes differ in anything other than the indices at which they read."""
    same = [(n.name, n.op, n.outputs) for n in one.nodes] == [(n.name, n.op, n.outputs) for n in other.nodes]
    if not same or one.outputs != other.outputs or [(e.name, e.target) for e in one.inputs] != [(e.name, e.target) for e in other.inputs]:
        raise Unlike("its passes are not alike")
    for a, b in zip(one.nodes, other.nodes, strict=True):
        at_pass(a.args, b.args, 0)
        for key, value in a.kwargs.items():
            at_pass(value, b.kwargs[key], 0)
