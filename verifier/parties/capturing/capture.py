"""Captures the functional ATen graph of a model as data. This executes the task's `forward`, so it runs only in the sandboxed reference process."""

# sandboxed: exports and calls the models that tasks define

from __future__ import annotations

import ast
import contextlib
import io
import logging
import math
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from verifier.float8 import narrowed, wide
from verifier.gathering import gathered_bytes
from verifier.graph import Capture, Graph, Node
from verifier.parties.capturing.agreeing import compare
from verifier.parties.capturing.calling import FlatCall, described, forward_arguments, rebuild
from verifier.parties.capturing.cutting import Cutter
from verifier.parties.capturing.exporting.export import export
from verifier.parties.capturing.exporting.numbers import SYMBOLS
from verifier.parties.capturing.exporting.settings import kept_settings
from verifier.parties.capturing.exporting.unseen import mentions
from verifier.parties.capturing.loop_nodes import LoopRefused
from verifier.parties.capturing.outside import counts, place_of_change
from verifier.parties.capturing.reading import frame_file, read_graph
from verifier.parties.capturing.reasons import line_of, reason
from verifier.parties.capturing.rolling import rolled
from verifier.parties.capturing.statements import under_self
from verifier.parties.capturing.tracing import method_of
from verifier.parties.group_sizes import Choosing, offsets_among
from verifier.parties.library_code import library_code
from verifier.parties.operations import count_flops
from verifier.parties.plain_state import PlainState, history_matters, settled
from verifier.source import sha256
from verifier.task import TensorSpec

TRIES = 3  # maximum number of exports; each one omits the loops that the previous export found to be unsuitable
logger = logging.getLogger(__name__)


def capture(model: torch.nn.Module, inputs: list[Any], task_source: str, mode: str) -> Capture:
    """Exports `model(*inputs)` in `mode` ("train" or "eval"): either the whole of forward or, if that is impossible, the runs of its statements that
    can be exported. If nothing can be exported, `graph` is None and `reason` says why."""
    started = time.perf_counter()
    result = Capture(task=sha256(task_source), mode=mode)
    model.train(mode == "train")
    with uncompiled(), torch.no_grad(), quiet(), strided(model), PlainState(model) as plain:
        refused: dict[tuple[str, int], str] = {}
        try:
            result.graph = captured(model, inputs, plain, task_source, refused)
        except Exception as error:  # the exporter and the task's forward may raise anything; the exception is then the reason
            line, why = line_of(error, frame_file(model)), reason(error, model)
            result.graph, left = pieces(model, inputs, plain, task_source, error)
            if line is None:  # use the line of a statement that stays in Python for the same reason
                line = next((place for place, cause in left if cause == why), None)
            if line is None and isinstance(error, StateOutside):
                tree = under_self(ast.parse(task_source.removeprefix("\ufeff")))
                line = next((place for name in error.names if (place := place_of_change(tree, name))), None)
            cause = f"{f'line {line}: ' if line else ''}{why}"
            if result.graph is None:
                result.reason = cause
            else:
                result.graph.left = told(refused, frame_file(model)) + result.graph.left or [cause]
        if result.graph is not None:
            result.bytes_min = minimal_bytes(result.graph)
    with uncompiled(), PlainState(model):
        choosing = Choosing()
        result.flops = count_flops(model, inputs, choosing)
        result.group_sizes = [*choosing.found.values(), *offsets_among(inputs)]
        result.key_rows = choosing.key_rows
    result.library = library_code(model, type(model).__module__)
    result.seconds = time.perf_counter() - started
    return result


def pieces(
    model: torch.nn.Module, inputs: list[Any], plain: PlainState, source: str, error: Exception
) -> tuple[Graph | None, list[tuple[int | None, str]]]:
    """Captures pieces of a model that cannot be captured as a whole because of `error`. Returns the pieces, if any, and the lines that stay in
    Python, each with the reason."""
    plain.restore()
    left: list[tuple[int | None, str]] = []
    try:
        method = method_of(model, source)
        if method is None or mentions(model, "_version"):  # the tensors that a part returns are new, and their versions are 0
            return None, left
        frozen = frozenset(error.names) if isinstance(error, StateOutside) else frozenset()
        args, kwargs = forward_arguments(model, inputs)
        cutter = Cutter(method, args, kwargs, plain, frozen, under_self(ast.parse(source.removeprefix("\ufeff"))))
        graph = cutter.graph()
        return graph, sorted(cutter.left.values(), key=lambda one: one[0] or 0)
    except Exception:  # the reason why the whole could not be captured is reported instead
        logger.debug("no pieces were captured", exc_info=True)
        return None, left


def told(refused: dict[tuple[str, int], str], file: str) -> list[str]:
    """Explains why loops that may iterate over experts stay in Python."""
    places = ((f"line {line}{'' if home == file else f' of {Path(home).name}'}", why) for (home, line), why in sorted(refused.items()))
    return [f"{place}: the passes of the loop are not merged: {why}" for place, why in places]


class StateOutside(ValueError):
    """Raised if forward changes `names` outside the state dict and its results depend on them."""

    def __init__(self, names: list[str]):
        super().__init__(f"forward changes {', '.join(names[:4])} outside the state dict, and its results depend on that")
        self.names = names


@contextlib.contextmanager
def uncompiled() -> Iterator[None]:
    """Disables `torch.compile` in the source. If a compiled function were called while a dispatch mode was active, PyTorch would not compile it then
    or in any later call."""
    with torch.compiler.set_stance("force_eager"):
        yield


@contextlib.contextmanager
def strided(model: torch.nn.Module) -> Iterator[None]:
    """Replaces state that is a view of a sparse tensor, such as its indices, with the same memory under a tensor of its own. The exporter would
    try to make a view of the sparse tensor."""
    before = []
    for module in model.modules():
        for name, tensor in module._buffers.items():
            if tensor is not None and tensor._base is not None and tensor._base.layout != torch.strided:
                before.append((module, name, tensor))
                module._buffers[name] = tensor.data
    try:
        yield
    finally:
        for module, name, tensor in before:
            module._buffers[name] = tensor


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silences exporters, which print pages of output about their failures. The reason is reported in a single line."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def captured(model: torch.nn.Module, inputs: list[Any], plain: PlainState, source: str, refused: dict[tuple[str, int], str] | None = None) -> Graph:
    """Captures the whole of `model(*inputs)`. Raises whatever prevents it. Adds to `refused` the loops that may iterate over experts but cannot be
    handled, with the reasons."""
    args, kwargs = forward_arguments(model, inputs)
    refused = {} if refused is None else refused
    for _ in range(TRIES):
        try:
            if (found := rolled(model, source, args, kwargs, plain, refused)) is not None:
                with found.named():
                    return found.written_out(exported(model, found.forward(), args, kwargs, plain))
            break
        except LoopRefused as error:  # retry without this loop
            refused[error.place] = str(error)
            plain.restore()
        except Exception:  # an exporter may raise anything; the pass-by-pass export below either succeeds or yields the reason
            logger.debug("the loop was not rolled up", exc_info=True)
            break
    plain.restore()
    return exported(model, model.forward, args, kwargs, plain, inputs, source)


def exported(
    model: torch.nn.Module,
    forward: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    plain: PlainState,
    inputs: list[Any] | None = None,
    source: str = "",
) -> Graph:
    """Exports `forward(*args, **kwargs)`, which is the model's own or a replacement. Without the model's `inputs` and `source`, a forward that
    changes state is rejected."""
    changed: set[str] = set()
    read: set[str] = set()  # numbers that forward reads from tensors and keeps
    made: set[str] = set()  # buffers created by forward, which cause the exporter to confuse one state entry with another

    def once(state: list[str]) -> Graph:
        def observe() -> None:
            changed.update(plain.changed())
            read.update(name for name in changed if isinstance(held(plain, name), SYMBOLS))
            made.update(set(plain.made_buffers()) - {f"self.{name}" for name in state})

        call = FlatCall(forward, args, kwargs, type(model).__module__, after=observe)
        with kept_settings():
            program = export(model, call, state)
        if made:
            raise StateOutside(sorted(changed))
        graph = read_graph(program, call, model, frame_file(model))
        if inputs is not None:  # the forward is the model's own
            compare(program, call, model, plain)
        return graph

    state: list[str] = []
    try:
        graph = once(state)
    except RuntimeError as error:
        if "is mutated in the forward" not in str(error):
            raise
        plain.restore()
        changed.clear()
        state = plain.tensors()
        graph = once(state)
    changed -= {f"self.{name}" for name in state}
    if not changed:
        return graph
    plain.restore()
    if inputs is None:
        raise StateOutside(sorted(changed))
    tree = under_self(ast.parse(source.removeprefix("\ufeff")))
    counters = {name for name in changed if (name in read or isinstance(held(plain, name), (int, float, str))) and counts(tree, name)}
    if counters and (moving := counters & read | counters - settled(model, sorted(counters), lambda twin, other: results(twin, inputs, other))):
        raise StateOutside(sorted(moving))
    if not history_matters(model, lambda twin, other: results(twin, inputs, other)):
        return graph
    state = [name for name in plain.tensors() if f"self.{name}" in changed]
    if others := sorted(changed - {f"self.{name}" for name in state}):
        raise StateOutside(others)
    return once(state)


def held(plain: PlainState, name: str) -> Any:
    place = plain.place(name)
    return None if place is None else place[0][place[1]]


def results(model: torch.nn.Module, inputs: list[Any], other: bool) -> list[torch.Tensor]:
    """Returns the model's result tensors for copies of `inputs`, or for other inputs with the same shapes, always with the same seed."""

    def changed(tensor: torch.Tensor) -> torch.Tensor:
        return narrowed(wide(tensor) * 0.5, tensor.dtype) if other and tensor.is_floating_point() else tensor.clone()

    call = FlatCall(model, tuple(inputs), {})
    tensors = iter([changed(leaf.value) for leaf in call.tensors])
    with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []):
        torch.manual_seed(0)
        output = model(*(rebuild(value, tensors) for value in inputs))
    values: list[Any] = []
    described(output, values, [])
    return values


def spec_bytes(spec: TensorSpec) -> int:
    size = torch.empty(0, dtype=getattr(torch, spec.dtype)).element_size()
    return math.prod(spec.shape) * size


# Operators whose result holds all or some elements of their input in the same order, so reading the result reads no other elements.
_AS_IT_IS = frozenset([
    "aten.view.default", "aten.reshape.default", "aten._unsafe_view.default", "aten.unsqueeze.default", "aten.squeeze.dim", "aten.alias.default",
    "aten.detach.default", "aten._to_copy.default",
])  # fmt: skip


def minimal_bytes(graph: Graph) -> int:
    """Counts the bytes needed to read the used inputs and weights once, and to write the outputs and changed state once. If an input is only gathered
    from, only the gathered elements count."""
    specs: dict[str, TensorSpec] = {node.name: node.outputs[0] for node in graph.nodes if len(node.outputs) == 1}
    specs.update({entry.name: entry.spec for entry in graph.inputs if entry.spec is not None})
    readers: dict[str, list[Node | None]] = {}  # null: the outputs

    def visit(value: Any, reader: Node | None) -> None:
        if isinstance(value, dict) and "ref" in value:
            readers.setdefault(value["ref"], []).append(reader)
        elif isinstance(value, (list, tuple)):
            for item in value:
                visit(item, reader)

    for node in graph.nodes:
        visit(node.args, node)
        visit(list(node.kwargs.values()), node)
    visit(graph.outputs, None)

    def read(name: str) -> int:
        whole, total = spec_bytes(specs[name]), 0
        for reader in readers.get(name, []):
            found = gathered_by(reader, name, specs[name])
            if found is None and reader is not None and reader.op in _AS_IT_IS and reader.name in specs:
                found = read(reader.name)
            if found is None:
                return whole
            total += found
        return min(whole, total)

    def gathered_by(reader: Node | None, name: str, spec: TensorSpec) -> int | None:
        if reader is None or not reader.outputs or reader.args[:1] != [{"ref": name}] or readers[name].count(reader) > 1:
            return None
        item = spec_bytes(spec) // max(math.prod(spec.shape), 1)
        return gathered_bytes(reader.op, reader.args, spec.shape, item, reader.outputs[0].shape)

    total = sum(read(entry.name) for entry in graph.inputs if entry.spec is not None)
    written = [leaf["ref"] for leaf in graph.outputs if isinstance(leaf, dict) and "ref" in leaf]
    written += [*graph.mutations.values(), *graph.mutated_inputs.values()]
    return total + sum(spec_bytes(specs[name]) for name in written if name in specs)
