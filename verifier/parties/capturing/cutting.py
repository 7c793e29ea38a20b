"""Cuts a forward that cannot be captured as a whole into runs of statements that can be captured.

If the exporter stops at a statement, that statement stays in Python. The cutter then tries the runs before and after it and, if it is a branch or a
loop, the runs inside it. In later rounds, it takes such a statement apart: into steps, into the statements of a submodule that it calls, or, for a
loop over modules, into passes. A run is captured for the sizes and non-tensor values of this call. If these depend on data, the run also stays in
Python.
"""

# sandboxed: exports parts of the models that tasks define

from __future__ import annotations

import ast
import copy
import functools
import re
import time
from dataclasses import dataclass, field
from typing import Any

import torch

from verifier.float8 import narrowed, wide
from verifier.graph import Graph
from verifier.parties.capturing.agreeing import MOST_BYTES_OF_PARTS, compare
from verifier.parties.capturing.calling import SHARED, FlatCall, Unwritable, shared
from verifier.parties.capturing.exporting.export import composed, decomposed, operators_listed_once
from verifier.parties.capturing.exporting.settings import OTHER, kept_settings
from verifier.parties.capturing.outside import Used, assigned_outside, unread
from verifier.parties.capturing.reading import read_graph
from verifier.parties.capturing.reasons import IN_FORWARD, reason, without_parts
from verifier.parties.capturing.runs import Found, Guards, Run, add, worth
from verifier.parties.capturing.statements import (
    COMPOUND,
    JUMPS,
    LOOPS,
    Splitter,
    all_blocks,
    blocks_of,
    elements,
    inlined,
    loaded,
    made_function,
    own_nodes,
    stored,
    unrolled,
)
from verifier.parties.capturing.tracing import PART_FILE, Method, Trace, observed, shape_of, statements_within
from verifier.parties.plain_state import PlainState, lasting
from verifier.private_names import mangle

SECONDS, WALL_SECONDS = 25.0, 35.0  # limits on this thread's CPU time and on wall-clock time, after which no further runs are tried
ROUNDS = 4  # maximum number of rounds; between rounds, statements at which the exporter stopped are taken apart
MOST_PASSES = 64  # maximum number of passes of a loop over modules
SIZED_BY_DATA = frozenset({"bincount", "nonzero", "argwhere", "unique", "unique_consecutive", "masked_select"})  # the exporter fails on them
TABLES = frozenset({"vars", "globals", "locals"})
GRADIENTS = frozenset({"grad", "backward", "requires_grad_"})
HARMLESS = ("no_grad", "inference_mode", "nullcontext", "record_function", "set_grad_enabled(False)")  # contexts that do not change what is computed
MOST_LEFT = 12  # maximum number of reasons reported


@dataclass
class Cutter:
    """Cuts one forward. `frozen` holds the names, in the form of `PlainState.changed`, of values outside the state dict that forward changes.
    Statements that read these values stay in Python."""

    method: Method
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    plain: PlainState
    frozen: frozenset[str]
    source: ast.Module
    tree: ast.FunctionDef = field(init=False)
    trace: Trace = field(init=False)
    other: Trace = field(init=False)
    runs: list[Run] = field(default_factory=list)
    left: dict[int, tuple[int | None, str]] = field(default_factory=dict)  # statement -> its line, and the reason why it stays in Python
    kept: list[ast.AST] = field(default_factory=list)  # trees kept alive because their identities serve as keys
    apart: list[tuple[ast.stmt, list[ast.stmt], str]] = field(default_factory=list)  # statements that were taken apart, their steps, and the reasons
    known: dict[tuple[Any, ...], Found] = field(default_factory=dict)  # results of runs from earlier rounds

    def __post_init__(self) -> None:
        self.tree = copy.deepcopy(self.method.tree)
        self.frozen |= assigned_outside(self.method.model, self.source, self.plain)
        self.deadline = time.thread_time() + SECONDS, time.monotonic() + WALL_SECONDS
        self.splitter = Splitter({node.id for node in ast.walk(self.tree) if isinstance(node, ast.Name)} | {*self.method.names})

    def graph(self) -> Graph | None:
        """Returns all runs as one graph of parts, or None if nothing worth compiling can be captured."""
        with operators_listed_once():
            for _ in range(ROUNDS):
                self.runs = []
                self.trace, self.other = self._trace(False), self._trace(True)
                self.frozen |= {*self.trace.changed, *self.other.changed}
                self._cover(self.tree.body, 0, len(self.tree.body), loop=False)
                if self._late() or not self._take_apart():
                    break
            finished = [part for run in self.runs if worth(run.found.graph) for part in self._finished(run)]
            self.runs = [run for run in finished if worth(run.found.graph)]
        if not self.runs:
            return None
        self._put_together()
        return self._joined()

    def _late(self) -> bool:
        return time.thread_time() > self.deadline[0] or time.monotonic() > self.deadline[1]

    def _trace(self, other: bool) -> Trace:
        def changed(tensor: torch.Tensor) -> torch.Tensor:
            if not other:
                return tensor.clone()
            if tensor.is_floating_point():
                return narrowed(wide(tensor) * -0.5 + 0.25, tensor.dtype)
            return ~tensor if tensor.dtype == torch.bool else tensor.clone()

        return observed(self.method, self.tree, self.args, self.kwargs, self.plain, changed)

    # -- runs ---------------------------------------------------------------------------------------------------------------

    def _cover(self, block: list[ast.stmt], first: int, end: int, loop: bool) -> None:
        """Captures as much as possible of the statements from `first` to `end`."""
        at = first
        self._behind_jumps(block)
        while at < end:
            stop = next((n for n in range(at, end) if self._stays(block[n])), end)
            if stop > at:
                self._try(block, at, stop, loop)
            if stop < end:
                self._within(block[stop], loop)
            at = stop + 1

    def _behind_jumps(self, block: list[ast.stmt]) -> None:
        """If the branch before a statement ended with a jump, so that the statement was not reached, gives the statement the variables recorded
        before the branch."""
        for branch, item in zip(block, block[1:], strict=False):
            jumped = isinstance(branch, ast.If) and not branch.orelse and isinstance(branch.body[-1], (ast.Return, ast.Raise, *JUMPS))
            if jumped and self.trace.at(item) is None and self.other.at(item) is None and (before := self.trace.at(branch)) is not None:
                self.trace.visits[id(item)] = [before]

    def _try(self, block: list[ast.stmt], first: int, end: int, loop: bool) -> None:
        if self._late():
            return
        try:
            self.runs.append(self._captured(block, first, end, loop))
            return
        except Exception as error:  # the exporter and the task's code may raise anything; the exception is then the reason
            self.plain.restore()
            at = _place(error, end - first)
            if at is None and end - first > 1:
                middle = (first + end) // 2
                self._try(block, first, middle, loop)
                self._try(block, middle, end, loop)
                return
            stop = first + (at or 0)
            self._leave(block[stop], reason(error, self.method.model), told=not made_function(block[stop]))
        if stop > first:
            self._try(block, first, stop, loop)
        self._within(block[stop], loop)
        self._cover(block, stop + 1, end, loop)

    def _within(self, item: ast.stmt, loop: bool) -> None:
        """Covers the blocks inside a statement that stays in Python, unless the statement has effects on them that kernels cannot reproduce."""
        if isinstance(item, COMPOUND) and not is_ruled(item):
            for inner in blocks_of(item):
                if self.trace.at(inner[0]) is None and not isinstance(item, LOOPS):
                    before = self.trace.at(item)  # a branch that was not taken would begin with the same variables
                    if before is not None and inner and self.other.at(inner[0]) is None:
                        self.trace.visits[id(inner[0])] = [before]
                self._cover(inner, 0, len(inner), loop or isinstance(item, LOOPS))

    def _stays(self, item: ast.stmt) -> bool:
        """Returns whether a statement is already known to stay in Python."""
        if id(item) in self.left:
            return True
        attributes = [node for node in ast.walk(item) if isinstance(node, ast.Attribute)]
        words = {node.id for node in ast.walk(item) if isinstance(node, ast.Name)}
        if touched := sorted((words | {ast.unparse(node) for node in attributes}) & self.frozen):
            self._leave(item, str(Used(touched[0])))
            return True
        if self.frozen and (words & TABLES or any(node.attr == "__dict__" for node in attributes)):
            self._leave(item, f"it may read {sorted(self.frozen)[0]} from a table of names, which forward changes outside the state dict")
            return True
        if {node.attr for node in attributes} & GRADIENTS and not isinstance(item, COMPOUND):
            self._leave(item, IN_FORWARD)
            return True
        if (words | {node.attr for node in attributes}) & SIZED_BY_DATA and not isinstance(item, COMPOUND):
            self._leave(item, "the size of a result depends on tensor values")
            return True
        silent = (ast.Global, ast.Import, ast.ImportFrom, *JUMPS)
        if isinstance(item, (ast.Assert, ast.Raise, *silent)) or isinstance(item, ast.Expr) and _prints(item.value):
            if not isinstance(item, silent):
                self._leave(
                    item,
                    "an assertion on values" if isinstance(item, ast.Assert) else "it has effects other than on tensors",
                    told=isinstance(item, ast.Assert),
                )
            return True
        return False

    def _leave(self, item: ast.stmt, why: str, told: bool = True) -> None:
        self.kept.append(item)
        self.left.setdefault(id(item), (getattr(item, "lineno", None) if told else None, self.splitter.of_source(why)))

    def _captured(self, block: list[ast.stmt], first: int, end: int, loop: bool) -> Run:
        items = block[first:end]
        returns = isinstance(items[-1], ast.Return)
        inside = [node for item in items[: -1 if returns else None] for node in own_nodes(item)]
        if any(isinstance(node, (ast.Return, *JUMPS)) and not _in_loop(items, node) for node in inside):
            raise Placed("it may leave forward or a loop early", next(n for n, item in enumerate(items) if _jumps(item)))
        elsewise = self.trace.elsewise | self.other.elsewise
        if (at := next((n for n, item in enumerate(items) if id(item) in elsewise), None)) is not None:
            raise Placed(OTHER, at)
        before = self._variables(items[0])
        given = sorted(loaded(items) & set(before) - {"self"})
        self._constant(items, given)
        tests = self._tests(items, before, given)
        writes = [] if returns else sorted(stored(items) & self._read_elsewhere(items, loop))
        lines = [item.lineno for item in items]
        names = list(writes)
        key = (*map(id, items), *given, "->", *writes)
        while key not in self.known:
            function = self.method.compiled(_function(items, given, None if returns else names))
            call = FlatCall(
                functools.partial(function, self.method.model), tuple(before[name] for name in given), {}, type(self.method.model).__module__
            )
            call.apart = not returns
            try:
                self.known[key] = self._exported(call)
                self.kept += items
            except Unwritable as error:
                raise ValueError(str(error).replace("forward returns", "forward returns" if returns else "it makes")) from error
            except UnboundLocalError as error:  # a variable that is assigned only on a path that was not taken
                lost = re.search(r"'(\w+)'", str(error))
                if lost is None or lost[1] not in names:
                    raise
                names.remove(lost[1])
                key = (*map(id, items), *given, "->", *names)
        return Run(items, self.known[key], given, names, returns, lines, loop, tests)

    def _exported(self, call: FlatCall) -> Found:
        changed: set[str] = set()
        frozen = {name for name in self.frozen if self.plain.place(name) is not None}
        before = set(self.plain.changed())  # state that cannot be restored, such as the progress of a generator

        def observe() -> None:
            changed.update(name for name in set(self.plain.changed()) - before if not (name in frozen and self.plain.place(name) is None))

        call.after = observe
        try:
            with unread(self.plain, self.frozen, call), kept_settings():
                exported = composed(self.method.model, call)
        except NameError as error:
            if error.name not in self.frozen:
                raise
            raise Placed(str(Used(error.name)), _place(error, len(self.tree.body) + 1)) from None
        self.plain.restore()
        if changed:
            raise ValueError(f"it changes {sorted(changed)[0]} outside the state dict")
        graph = read_graph(exported, call, self.method.model, PART_FILE)
        if graph.mutated_inputs and shared(leaf.value for leaf in call.tensors) or self._changes_state_of(graph, call):
            raise ValueError(SHARED)
        return Found(exported, call, graph)

    def _changes_state_of(self, graph: Graph, call: FlatCall) -> bool:
        """Returns whether a run changes a view of a weight or of state that it also uses by itself, or the other way round."""
        state, users = lasting(self.method.model), [entry for entry in graph.inputs if entry.kind == "user" and entry.spec is not None]
        given = [(entry.name in graph.mutated_inputs, leaf.value) for entry, leaf in zip(users, call.tensors, strict=True)]
        own = [(entry.target in graph.mutations, state[entry.target]) for entry in graph.inputs if entry.target in state]
        return any((one or other) and shared((tensor, held)) for one, tensor in given for other, held in own)

    def _tests(self, items: list[ast.stmt], before: dict[str, Any], given: list[str]) -> list[str]:
        """Returns the conditions on the variables that a run reads. Raises `Placed` if no condition can be written for one of them."""
        held = [id(place[0][place[1]]) for name in self.frozen if (place := self.plain.place(name)) is not None]
        guards = Guards(self.method.model, self.tree, self.method.names)
        found: list[str] = []
        for name in given:
            at = next(n for n, item in enumerate(items) if name in loaded([item]))
            if callable(before[name]) and id(before[name]) in held:
                raise Placed(f"it uses `{name}`, which forward changes outside the state dict", at)
            try:
                found += guards.conditions(name, before[name])
            except ValueError as error:
                raise Placed(str(error), at) from None
        return found

    def _finished(self, run: Run) -> list[Run]:
        """Returns the run in terms of the compiler's operators. If they cannot express the whole run, splits it in half and returns the parts that
        they can express."""
        try:
            program = decomposed(run.found.exported)
            run.found.graph = read_graph(program, run.found.call, self.method.model, PART_FILE)
            compare(program, run.found.call, self.method.model, self.plain, MOST_BYTES_OF_PARTS)
            return [run]
        except Exception as error:
            if len(run.items) == 1 or self._late():
                for item in run.items:
                    self._leave(item, reason(error, self.method.model))
                return []
        middle = len(run.items) // 2
        found: list[Run] = []
        for first, end in ((0, middle), (middle, len(run.items))):
            try:
                found += self._finished(self._captured(run.items, first, end, run.loop))
            except Exception as error:
                self.plain.restore()
                self._leave(run.items[first], reason(error, self.method.model))
        return found

    def _variables(self, item: ast.stmt) -> dict[str, Any]:
        found = self.trace.at(item) or self.other.at(item)
        if found is None:
            raise ValueError("the task's inputs did not reach it")
        return found

    def _constant(self, items: list[ast.stmt], given: list[str]) -> None:
        """Checks that the sizes and non-tensor values of a run's variables are constant. Raises `Placed` if one of them differs in another visit or
        for other inputs."""
        visits = [*self.trace.visits.get(id(items[0]), []), *self.other.visits.get(id(items[0]), [])]
        for name in given:
            shapes = [shape_of(visit[name]) for visit in visits if name in visit]
            if any(shape != shapes[0] for shape in shapes[1:]):
                at = next(n for n, item in enumerate(items) if name in loaded([item]))
                raise Placed(f"`{name}` has a size or value that depends on data or on the loop pass", at)

    def _read_elsewhere(self, items: list[ast.stmt], loop: bool) -> set[str]:
        own = {id(node) for item in items for node in ast.walk(item)}
        found = set(loaded(items)) if loop else set()
        for node in ast.walk(self.tree):
            if id(node) not in own:
                if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Load, ast.Del)):
                    found.add(node.id)
                elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                    found.add(node.target.id)
        return found

    # -- taking apart -------------------------------------------------------------------------------------------------------

    def _take_apart(self) -> bool:
        """Takes apart the statements at which the exporter stopped. Returns whether any statement was taken apart."""
        done = False
        for block in list(all_blocks(self.tree.body)):
            for at in range(len(block) - 1, -1, -1):
                item = block[at]
                if id(item) not in self.left:
                    continue
                steps = self._steps(item)
                if steps != [item]:
                    self.apart.append((item, steps, self.left[id(item)][1]))
                    block[at : at + 1] = [ast.fix_missing_locations(step) for step in steps]
                    del self.left[id(item)]
                    done = True
        return done

    def _steps(self, item: ast.stmt) -> list[ast.stmt]:
        if isinstance(item, ast.For):
            changing = {ast.unparse(node) for node in ast.walk(item.iter) if isinstance(node, (ast.Attribute, ast.Name))} & self.frozen
            passes = elements(item.iter, self._module) if not changing else None
            held = any(isinstance(node, ast.Subscript) and self._module(node.value) is not None for inner in item.body for node in ast.walk(inner))
            if not passes or len(passes) > MOST_PASSES or isinstance(passes[0], ast.Constant) and not held:
                return [item]
            own = {id(node) for inner in item.body for node in ast.walk(inner)}
            kept = {node.id for node in ast.walk(self.tree) if isinstance(node, ast.Name) and id(node) not in own and isinstance(node.ctx, ast.Load)}
            return unrolled(item, passes, kept, self.splitter.fresh) or [item]
        value = getattr(item, "value", None)
        if isinstance(value, ast.Call) and isinstance(item, (ast.Assign, ast.Return)):
            inside = self._inlined(value)
            if inside is not None:
                steps, result = inside
                last = copy.copy(item)
                last.value = result
                return [*steps, last]
        self.splitter.changing = self.frozen
        self.splitter.local = stored(self.tree.body) | {node.arg for node in ast.walk(self.tree.args) if isinstance(node, ast.arg)} - {"self"}
        return self.splitter.split(item)

    def _inlined(self, call: ast.Call) -> tuple[list[ast.stmt], ast.expr] | None:
        """Inlines a call of a submodule's forward or of another method of the model."""
        target = self._module(call.func)
        owner: ast.expr = call.func
        if isinstance(target, torch.jit.ScriptModule):
            return None
        if isinstance(target, torch.nn.Module):
            own_call = type(target).__call__ is not torch.nn.Module.__call__ or "forward" in vars(target)
            if target._forward_hooks or target._forward_pre_hooks or own_call:
                return None
            function = type(target).forward
        elif isinstance(call.func, ast.Attribute) and isinstance(parent := self._module(call.func.value), torch.nn.Module):
            if call.func.attr in vars(parent):  # instead of the method of this name
                return None
            function, owner = getattr(type(parent), call.func.attr, None), call.func.value  # type: ignore[assignment]  # another kind
        else:
            return None
        tree = self._tree_of(function)
        if tree is None:
            return None
        return inlined(call, tree, owner, self.splitter.fresh)

    def _tree_of(self, function: Any) -> ast.FunctionDef | None:
        """Returns the statement that defines a function of the task's own source."""
        code = getattr(function, "__code__", None)
        if code is None or function.__globals__ is not self.method.names:
            return None
        for owner in (node for node in ast.walk(self.source) if isinstance(node, ast.ClassDef)):
            for item in owner.body:
                if isinstance(item, ast.FunctionDef) and item.lineno == code.co_firstlineno and item.name == code.co_name:
                    found = copy.deepcopy(item)
                    mangle(found, owner.name)
                    return None if any(isinstance(n, ast.Name) and n.id == "super" for n in ast.walk(found)) else found
        return None

    def _module(self, tree: ast.expr) -> Any:
        """Evaluates an expression that consists of attributes and constant indices on `self`; returns None for any other expression."""
        for node in ast.walk(tree):
            if (
                not isinstance(node, (ast.Attribute, ast.Subscript, ast.Slice, ast.UnaryOp, ast.USub, ast.Name, ast.Constant, ast.Load))
                or isinstance(node, ast.Name)
                and node.id != "self"
            ):
                return None
        try:
            return eval(compile(ast.fix_missing_locations(ast.Expression(copy.deepcopy(tree))), PART_FILE, "eval"), {"self": self.method.model})
        except Exception:
            return None

    def _put_together(self) -> None:
        """Restores statements for which no step was captured."""
        used = {id(item) for run in self.runs for item in statements_within(run.items)}
        for item, steps, why in reversed(self.apart):
            for block in all_blocks(self.tree.body):
                at = next((n for n, one in enumerate(block) if one is steps[0]), None)
                if at is None or [id(one) for one in block[at : at + len(steps)]] != [id(one) for one in steps]:
                    continue
                if not any(id(one) in used for one in statements_within(steps)):
                    block[at : at + len(steps)] = [item]
                    self._leave(item, why, told=not made_function(item))
                break

    # -- one graph ----------------------------------------------------------------------------------------------------------

    def _joined(self) -> Graph:
        whole = Graph(inputs=[], nodes=[], outputs=[])
        body = copy.deepcopy(self.tree)
        places = {
            id(item): (twin, n) for block, twin in zip(all_blocks(self.tree.body), all_blocks(body.body), strict=True) for n, item in enumerate(block)
        }
        order = {id(item): n for n, item in enumerate(statements_within(self.tree.body))}
        self.runs.sort(key=lambda run: order[id(run.items[0])])
        marks: list[tuple[list[ast.stmt], int, int, ast.stmt]] = []
        for run in self.runs:
            if set(run.found.graph.mutations) & set(whole.mutations):
                continue
            name = f"compute_part_{len(whole.parts) + 1}"
            add(whole, run, name)
            mark: ast.stmt = ast.Expr(ast.Call(ast.Name("__part__", ast.Load()), [ast.Constant(name)], []))
            block, first = places[id(run.items[0])]
            marks.append((block, first, first + len(run.items), mark))
        for block, first, end, mark in sorted(marks, key=lambda one: one[1], reverse=True):
            block[first:end] = [mark]
        mangle(body, self.method.owner)
        whole.forward = ast.unparse(ast.fix_missing_locations(body))
        covered = {id(item) for run in self.runs for item in statements_within(run.items)}
        found = {(line, why) for key, (line, why) in self.left.items() if line is not None and key not in covered and key in order}
        whole.left = [f"line {line}: {why}" for line, why in without_parts(found)][:MOST_LEFT]
        return whole


class Placed(ValueError):
    """A reason, with the number of the statement that it refers to."""

    def __init__(self, message: str, at: int | None):
        super().__init__(message)
        self.at = at


def _function(items: list[ast.stmt], given: list[str], writes: list[str] | None) -> ast.FunctionDef:
    """Builds `def part(self, *given): items; return writes`. All nodes of a statement get the statement's number as their line number."""
    body = [copy.deepcopy(item) for item in items]
    if writes is not None:
        values = [ast.Name(name, ast.Load()) for name in writes]
        body.append(ast.Return(values[0] if len(values) == 1 else ast.Tuple(list(values), ast.Load())))
    for at, item in enumerate(body, start=1):
        for node in ast.walk(item):
            if "lineno" in node._attributes:
                node.lineno = node.end_lineno = at  # type: ignore[attr-defined]  # these nodes have a place
                node.col_offset = node.end_col_offset = 0  # type: ignore[attr-defined]  # as above
    arguments = ast.arguments([], [ast.arg("self"), *map(ast.arg, given)], None, [], [], None, [])
    return ast.fix_missing_locations(ast.FunctionDef("part", arguments, body, []))


def _place(error: BaseException, count: int) -> int | None:
    """Returns the number of the statement that an error refers to, or None if it is unknown."""
    if isinstance(error, Placed):
        return error.at
    at = None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == PART_FILE and trace.tb_frame.f_code.co_name == "part":
            at = trace.tb_lineno - 1
        trace = trace.tb_next
    if at is None and (told := re.match(r"line (\d+): ", str(error))):
        at = int(told[1]) - 1
    return at if at is not None and at < count else None


def is_ruled(item: ast.stmt) -> bool:
    """Returns whether a statement is a `with` that may change what its inner statements compute, or a `try` that may continue after an error in one
    of them."""
    if isinstance(item, (ast.With, ast.AsyncWith)):
        return any(one.optional_vars is not None or not any(word in ast.unparse(one.context_expr) for word in HARMLESS) for one in item.items)
    return isinstance(item, (ast.Try, ast.TryStar)) and bool(item.handlers)


def _prints(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "print"


def _jumps(item: ast.stmt) -> bool:
    return any(isinstance(node, (ast.Return, *JUMPS)) for node in own_nodes(item))


def _in_loop(items: list[ast.stmt], node: ast.AST) -> bool:
    """Returns whether a jump belongs to a loop among the statements."""
    if isinstance(node, ast.Return):
        return False
    return any(isinstance(loop, LOOPS) and any(inner is node for inner in ast.walk(loop)) for item in items for loop in ast.walk(item))
