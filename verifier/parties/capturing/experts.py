"""Captures loops over experts, each of which processes the rows routed to it: two passes are captured, then written out for all experts together.

In the exported forward, such a loop is a single operator, like a rolled-up loop (rolling.py). A pass is captured with a number of rows that does not
depend on values (routing.py).
"""

# sandboxed: exports parts of the models that tasks define

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from verifier.graph import Graph, GraphInput, Node
from verifier.parties.capturing.calling import FlatCall
from verifier.parties.capturing.expert_sources import asks_more_of_sizes, counts_of, items_of, same_module, targets_of
from verifier.parties.capturing.expert_weights import Passes
from verifier.parties.capturing.experts_written import Writer
from verifier.parties.capturing.exporting.export import composed, decomposed
from verifier.parties.capturing.loop_nodes import SPACE, Unlike, numbers, refs, renamed, state_of
from verifier.parties.capturing.loop_sites import Visit, routes
from verifier.parties.capturing.reading import frame_file, read_graph
from verifier.parties.capturing.routing import PLACE, Routing
from verifier.parties.capturing.statements import loaded, stored
from verifier.parties.capturing.written import Written
from verifier.parties.plain_state import PlainState
from verifier.task import TensorSpec

ITEM, ONCE, ROUTING = "item__", "once__", "routing__"
LEAVES = (ast.Break, ast.Return, ast.Yield, ast.YieldFrom, ast.Global, ast.Nonlocal, ast.Delete, ast.Await)


@dataclass
class Experts:
    """One run of a loop. `given` names the tensors that a pass reads, `changed` those that it changes, and `shared` those of `changed` that may also
    have another name."""

    model: torch.nn.Module
    item: ast.For
    given: list[str]
    changed: list[str]
    shared: set[str]
    passes: Passes
    place: tuple[str, int]  # file and line
    number: int = field(default_factory=lambda: next(numbers))

    @property
    def operator(self) -> str:
        return f"{SPACE}.loop_{self.number}.default"

    @property
    def state(self) -> list[str]:
        """Parameters and buffers that any pass reads."""
        own = [e.target for e in self.passes.one.inputs if e.kind in ("parameter", "buffer") and e.name not in self.passes.state]
        return list(dict.fromkeys([*own, *(target for targets in self.passes.state.values() for target in targets)]))

    def specs(self) -> list[TensorSpec]:
        known = {entry.name: entry.spec for entry in self.passes.one.inputs if entry.spec}
        return [known[name] for name in self.passes.results]

    @property
    def text(self) -> str:
        """Returns the statements that replace the loop while forward is exported."""
        lines = [f"out__ = loop__([{', '.join(self.given)}])"]
        return "\n".join([*lines, *(f"{n}.copy_(out__[{at}])" if n in self.shared else f"{n} = out__[{at}]" for at, n in enumerate(self.changed))])

    def __call__(self, values: list[torch.Tensor]) -> list[torch.Tensor]:
        operator: Any = getattr(getattr(torch.ops, SPACE), f"loop_{self.number}")
        returned: list[torch.Tensor] = operator.default([*values, *(state_of(self.model, target) for target in self.state)])
        return returned

    def written_out(
        self, node: Node, taken: set[str], known: Callable[[str], Node | None], spec: Callable[[str], TensorSpec]
    ) -> tuple[list[Node], list[Any]]:
        """Returns the operators of all passes, under names that are not in `taken`, and the values that the operator returns. Raises `Unlike`."""
        users = [entry.name for entry in self.passes.one.inputs if entry.kind == "user" and entry.spec is not None]
        weights = dict(zip(self.state, node.args[0][len(users) :], strict=True))
        values = dict(zip(users, node.args[0], strict=False))
        values |= {e.name: weights[e.target] for e in self.passes.one.inputs if e.target in weights and e.name not in self.passes.state}
        out = Written(known, spec, taken)
        made = Writer(self.passes, values, weights, out).written()
        return out.found, [made[name] for name in self.passes.results]


def experts_of(visit: Visit, plain: PlainState) -> Experts:
    """Captures a loop over experts. Raises `Unlike`, or any exception that an export raises."""
    item, method, before = visit.item, visit.function.method, dict(visit.before)
    if item.orelse or not routes(item) or any(isinstance(node, LEAVES) for one in item.body for node in ast.walk(one)):
        raise Unlike("it has an unsupported form, or may end early")
    held = [name for name in sorted(loaded([item])) if name in before]
    before |= counts_of(held, visit, before)
    items, open_ended = items_of(item, visit, before)
    inside = {id(node) for node in ast.walk(item)}
    names = [name for name in sorted(_read_first(item.body)) if name in before and name not in targets_of(item)]
    given = [name for name in names if isinstance(before[name], torch.Tensor)]
    carried = [name for name in sorted(stored(item.body)) if name in given]
    lost = {name for name in stored(item.body) | targets_of(item) if name not in carried and name in _read_after(visit.function.tree, item, inside)}
    if lost:
        raise Unlike(f"{sorted(lost)[0]} of the last pass is read after the loop")
    fixed = {name: before[name] for name in names if name not in given}
    if any(name in fixed for name in stored(item.body)):
        raise Unlike("a non-tensor value changes from pass to pass")
    if asks_more_of_sizes(item.body):
        raise Unlike("the number of rows decides more than whether a pass has any")
    one, other = (_pass(visit, items[at], few, given, fixed, carried, plain) for at, few in ((0, False), (1, True)))
    one, other, pairs = _side_by_side(_each_once(one), _each_once(other))
    results, changed = _results(one, given, carried)
    state, count = _state(method.model, pairs, len(items) if not open_ended else min(_chosen_of(one, other), default=0))
    asked = [leaf["ref"] for leaf in one.outputs[len(carried) :]]
    storages = [value.untyped_storage().data_ptr() for value in _tensors(before)]
    shared = {name for name in changed if storages.count(before[name].untyped_storage().data_ptr()) > 1 or name in _parameters(visit.function.tree)}
    if any(_meet(before[name], before[other]) for name in changed for other in given if other != name):
        raise Unlike("a tensor that the passes change is read under another name")
    return Experts(method.model, item, given, changed, shared, Passes(one, other, count, results, asked, state), visit.place)


def _read_first(body: list[ast.stmt]) -> set[str]:
    """Returns the names that a pass reads before it sets them."""
    found: set[str] = set()
    known: set[str] = set()
    for one in body:
        found |= loaded([one]) - known
        if isinstance(one, ast.Assign):
            known |= {
                node.id for target in one.targets for node in ast.walk(target) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            }
    return found


def _read_after(tree: ast.FunctionDef, item: ast.For, inside: set[int]) -> set[str]:
    """Returns the names that are read outside the loop, except for names that another loop sets before reading them."""
    own: set[int] = set()
    for loop in ast.walk(tree):
        if isinstance(loop, ast.For) and loop is not item and not any(node is item for node in ast.walk(loop)):
            set_here = targets_of(loop) | {
                node.id
                for one in loop.body
                if isinstance(one, ast.Assign)
                for target in one.targets
                for node in ast.walk(target)
                if isinstance(node, ast.Name)
            }
            own |= {id(node) for one in loop.body for node in ast.walk(one) if isinstance(node, ast.Name) and node.id in set_here}
    return {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and id(n) not in inside and id(n) not in own}


def _pass(visit: Visit, value: Any, few: bool, given: list[str], fixed: dict[str, Any], carried: list[str], plain: PlainState) -> Graph:
    """Captures a pass as a graph with the tensors `given` as inputs, with few rows or with one row per mask element. The graph returns the tensors
    that the pass changes and the masks that it queries."""
    item, method = visit.item, visit.function.method
    body = ast.For(ast.Name(ONCE, ast.Store()), ast.Tuple([ast.Constant(0)], ast.Load()), copy.deepcopy(item.body), [])
    begin = ast.Assign([copy.deepcopy(item.target)], ast.Name(ITEM, ast.Load()))
    returned = ast.Return(ast.Tuple([ast.Name(name, ast.Load()) for name in carried], ast.Load()))
    within = ast.With([ast.withitem(ast.Name(ROUTING, ast.Load()))], [begin, body])
    parameters = [ast.arg(name) for name in (*given, ITEM, ROUTING, *fixed)]
    tree = ast.FunctionDef("part", ast.arguments([], parameters, None, [], [], None, []), [within, returned], [])
    for node in ast.walk(tree):
        if "lineno" in node._attributes and not hasattr(node, "lineno"):
            ast.copy_location(node, item)
    function = method.compiled(ast.fix_missing_locations(ast.copy_location(tree, item)), visit.function.file)

    def run(*values: torch.Tensor) -> Any:
        routing = Routing(few)
        found = function(*values, value, routing, *fixed.values())
        return list(found), routing.asked

    call = FlatCall(run, tuple(visit.before[name] for name in given), {}, type(method.model).__module__)
    held = [(kept, _contents(kept)) for kept in fixed.values() if isinstance(kept, (list, dict, set))]
    changed: set[str] = set()
    call.after = lambda: changed.update(plain.changed())
    graph = read_graph(decomposed(composed(method.model, call)), call, method.model, frame_file(method.model))
    plain.restore()
    if changed or graph.mutations or any(entry.kind == "constant" for entry in graph.inputs):
        raise Unlike("a pass changes state")
    if any(_contents(kept) != items for kept, items in held):
        raise Unlike("a pass changes a list, a dict or a set in place")
    if not all(isinstance(leaf, dict) and "ref" in leaf for leaf in graph.outputs):
        raise Unlike("a pass returns something other than tensors")
    return graph


def _each_once(graph: Graph) -> Graph:
    """Returns the graph with each mask, and each query of a mask, computed only once, because `out[mask] += y` queries its mask twice."""
    names: dict[str, Any] = {}
    known: dict[str, str] = {}
    nodes = []
    for node in graph.nodes:
        node = node.model_copy(
            update={"args": renamed(node.args, names), "kwargs": {key: renamed(value, names) for key, value in node.kwargs.items()}}
        )
        mask = node.op == PLACE or len(node.outputs) == 1 and node.outputs[0].dtype == "bool"
        first = known.setdefault(f"{node.op} {node.args} {node.kwargs}", node.name) if mask else node.name
        if first == node.name:
            nodes.append(node)
        else:
            names[node.name] = {"ref": first}
    mutated = {source: renamed({"ref": name}, names)["ref"] for source, name in graph.mutated_inputs.items()}
    return graph.model_copy(update={"nodes": nodes, "outputs": renamed(graph.outputs, names), "mutated_inputs": mutated})


def _side_by_side(one: Graph, other: Graph) -> tuple[Graph, Graph, list[tuple[GraphInput, GraphInput]]]:
    """Matches two passes. Returns both with the inputs that they read, under the first pass's names, and the pairs of state entries that
    correspond."""
    if [(n.name, n.op) for n in one.nodes] != [(n.name, n.op) for n in other.nodes] or one.outputs != other.outputs:
        raise Unlike("its passes are not alike")
    names: dict[str, str] = {}
    for a, b in zip(one.nodes, other.nodes, strict=True):
        mine, its = (list(refs([node.args, list(node.kwargs.values())])) for node in (a, b))
        if len(mine) != len(its) or any(names.setdefault(y, x) != x for x, y in zip(mine, its, strict=True)):
            raise Unlike("its passes are not alike")
    if len(set(names.values())) != len(names) or one.mutated_inputs != other.mutated_inputs:
        raise Unlike("its passes are not alike")
    own, others = ({entry.name: entry for entry in graph.inputs} for graph in (one, other))
    pairs = [(own[mine], others[its]) for its, mine in names.items() if its in others and mine in own]
    if any(a.kind != b.kind or a.kind == "user" and a.name != b.name for a, b in pairs):
        raise Unlike("its passes are not alike")
    inputs = [a for a in one.inputs if a.kind == "user" or any(a is mine for mine, _ in pairs)]
    swapped = {its: {"ref": mine} for its, mine in names.items()}
    nodes = [
        n.model_copy(update={"args": renamed(n.args, swapped), "kwargs": {key: renamed(value, swapped) for key, value in n.kwargs.items()}})
        for n in other.nodes
    ]
    return one.model_copy(update={"inputs": inputs}), other.model_copy(update={"nodes": nodes}), [p for p in pairs if p[0].kind != "user"]


def _results(one: Graph, given: list[str], carried: list[str]) -> tuple[dict[str, str], list[str]]:
    """Returns what the passes change: a map from inputs to their new values, and the names of the variables."""
    users = [entry for entry in one.inputs if entry.kind == "user" and entry.spec is not None]
    by_variable = {given[entry.position]: entry.name for entry in users}
    results = dict(one.mutated_inputs)
    for name, leaf in zip(carried, one.outputs, strict=False):
        if leaf["ref"] != by_variable[name] and by_variable[name] not in results:
            results[by_variable[name]] = leaf["ref"]
    variables = {entry: name for name, entry in by_variable.items()}
    if not results:
        raise Unlike("nothing comes of it")
    return results, [variables[name] for name in results]


def _state(model: torch.nn.Module, pairs: list[tuple[GraphInput, GraphInput]], count: int) -> tuple[dict[str, list[str]], int]:
    """Returns the weights that differ between passes, with their names for each expert, and the number of experts."""
    if count < 2:
        raise Unlike("the number of experts is not known")
    known = dict(model.state_dict(keep_vars=True))
    modules = dict(model.named_modules())
    found: dict[str, list[str]] = {}
    for a, b in pairs:
        if a.target == b.target:
            continue
        targets = [_target(a.target, b.target, at) for at in range(count)]
        if any(
            target not in known or (known[target].shape, known[target].dtype) != (known[a.target].shape, known[a.target].dtype) for target in targets
        ):
            raise Unlike("its experts are not alike")
        depth = next(at for at, (m, n) in enumerate(zip(a.target.split("."), b.target.split("."), strict=True)) if m != n) + 1
        holders = [modules.get(".".join(target.split(".")[:depth])) for target in targets]
        if any(holder is not None and not same_module(holders[0], holder) for holder in holders):
            raise Unlike("its experts are not alike")
        found[a.name] = targets
    return found, count


def _chosen_of(one: Graph, other: Graph) -> list[int]:
    """Returns the sizes of the axes that passes index with their number."""
    specs = {n.name: n.outputs[0] for n in one.nodes if n.outputs} | {e.name: e.spec for e in one.inputs if e.spec}
    pairs = zip(one.nodes, other.nodes, strict=True)
    return [specs[a.args[0]["ref"]].shape[a.args[1]] for a, b in pairs if a.op == "aten.select.int" and (a.args[2], b.args[2]) == (0, 1)]


def _target(first: str, second: str, at: int) -> str:
    """Returns the state-dict name that pass `at` uses where the first two passes use these names."""
    mine, others = re.split(r"(\d+)", first), re.split(r"(\d+)", second)
    if len(mine) != len(others):
        raise Unlike("its experts are not numbered")
    found = []
    for a, b in zip(mine, others, strict=True):
        if a != b and not (a.isdigit() and b.isdigit() and int(b) == int(a) + 1):
            raise Unlike("its experts are not numbered")
        found.append(a if a == b else str(int(a) + at))
    return "".join(found)


def _meet(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def _contents(value: Any) -> list[int]:
    """Returns a fingerprint that shows whether a list, a dict or a set has been changed in place."""
    return [id(item) for item in ([*value, *value.values()] if isinstance(value, dict) else value)]


def _tensors(values: dict[str, Any]) -> list[torch.Tensor]:
    return [value for value in values.values() if isinstance(value, torch.Tensor) and value.layout is torch.strided]


def _parameters(tree: ast.FunctionDef) -> set[str]:
    return {argument.arg for argument in [*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs]}
