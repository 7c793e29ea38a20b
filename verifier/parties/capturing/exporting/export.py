"""Exports a model's call with `torch.export` as a functional ATen graph, keeping composite operators that a compiler fuses as a whole."""

# sandboxed: exports the models that tasks define

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._decomp import decompositions as torch_decompositions

from verifier.draws import draws
from verifier.parties.capturing.calling import FlatCall, called_as
from verifier.parties.capturing.exporting.assigned import storing
from verifier.parties.capturing.exporting.copies import copies_traced
from verifier.parties.capturing.exporting.masked import unmasked
from verifier.parties.capturing.exporting.numbers import numbers_stay
from verifier.parties.capturing.exporting.raising import refuse_caught
from verifier.parties.capturing.exporting.types_told import types_told
from verifier.parties.capturing.exporting.unseen import Caught, nothing_unseen
from verifier.parties.capturing.exporting.validation import validated_on_device
from verifier.parties.plain_state import source_of

# Composite operators that carry more information than their decomposition. A compiler fuses each as a whole or leaves it to the library.
KEEP = frozenset(
    [
        "linear",
        "matmul",
        "softmax.int",
        "log_softmax.int",
        "layer_norm",
        "group_norm",
        "rms_norm",
        "instance_norm",
        "scaled_dot_product_attention",
        "einsum",
        "conv1d",
        "conv2d",
        "conv3d",
        "conv_transpose1d",
        "conv_transpose2d",
        "conv_transpose3d",
        "convolution",
        "max_pool1d",
        "max_pool2d",
        "max_pool3d",
        "avg_pool1d",
        "avg_pool2d",
        "avg_pool3d",
        "adaptive_avg_pool1d",
        "adaptive_avg_pool2d",
        "adaptive_avg_pool3d",
        "adaptive_max_pool2d",
        "cross_entropy_loss",
        "gelu",
        "silu",
        "softplus",
        "mish",
        "hardswish",
        "hardsigmoid",
        "hardtanh",
        "leaky_relu",
        "elu",
        "relu6",
        "log_sigmoid",
        "var.correction",
        "var.dim",
        "var.default",
        "std.correction",
        "std.dim",
        "std.default",
        "logsumexp",
        "cumsum",
        "embedding",
        "lstm.input",
        "gru.input",
        "rnn_tanh.input",
        "rnn_relu.input",
        "dropout",
        "upsample_nearest2d",
        "upsample_bilinear2d",
        "pixel_shuffle",
        "pad",
        "roll",
        "triu",
        "tril",
        "logaddexp",
        "addmm",
        "baddbmm",
        "all",
        "index_add",  # uses atomics; its decomposition first sorts the index, which is many times slower on a GPU
        "inverse",  # this and the following operators raise an error for a singular matrix, which a decomposition cannot express in the graph
        "linalg_inv",
        "linalg_solve",
        "linalg_cholesky",
        "linalg_lu_factor",
        "linalg_ldl_factor",
    ]
)
_EMPTY = torch.fx.GraphModule(torch.nn.Module(), torch.fx.Graph())
READS_DATA = ("GuardOnDataDependentSymNode", "DataDependentOutputException")  # exporter errors raised when a tensor's value is needed as a number


def export(model: torch.nn.Module, call: FlatCall, state: Sequence[str] = ()) -> torch.export.ExportedProgram:
    """Exports `call` as a graph of its tensors. `state` lists attributes, as `module.name`, that forward changes like buffers. Propagates any
    exception that the exporter raises."""
    return decomposed(composed(model, call, state))


def decomposed(exported: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    with recurrent_layers_by_shape():
        before = _draws(exported.graph)  # decomposing also removes unused nodes from this graph
        with own_names(exported):
            made: torch.export.ExportedProgram = exported.run_decompositions(decompositions())
        _rename(made, {theirs: own for own, theirs in _taken(exported).items()})
        if before > _draws(made.graph):
            raise ValueError("it draws random numbers that nothing reads, which a graph leaves out")
        return made


@contextlib.contextmanager
def own_names(exported: torch.export.ExportedProgram) -> Iterator[None]:
    """Renames attributes of the model whose names a graph module already uses (`self.code`, `self.graph`, `self.meta`). To decompose, PyTorch builds
    a graph module and would find that module's own attributes instead."""
    names = _taken(exported)
    _rename(exported, names)
    try:
        yield
    finally:
        _rename(exported, {theirs: own for own, theirs in names.items()})


def _taken(exported: torch.export.ExportedProgram) -> dict[str, str]:
    firsts = {target.split(".")[0] for target in (*exported.state_dict, *exported.constants)}
    return {first: f"{first}__of_the_model" for first in firsts if hasattr(_EMPTY, first)}


def _rename(exported: torch.export.ExportedProgram, names: dict[str, str]) -> None:
    """Replaces the first parts of the names of parameters, buffers and constants."""
    if not names:
        return

    def renamed(target: str) -> str:
        first, dot, rest = target.partition(".")
        return names.get(first, first) + dot + rest

    known = {*exported.state_dict, *exported.constants}  # an input that forward changes is a target, too
    for spec in (*exported.graph_signature.input_specs, *exported.graph_signature.output_specs):
        if spec.target in known:
            spec.target = renamed(spec.target)
    for table in (exported.state_dict, exported.constants):
        entries = {renamed(target): value for target, value in table.items()}
        table.clear()
        table.update(entries)


def _draws(graph: torch.fx.Graph) -> int:
    return sum(node.op == "call_function" and draws(str(node.target), node.args, node.kwargs) for node in graph.nodes)


def composed(model: torch.nn.Module, call: FlatCall, state: Sequence[str] = ()) -> torch.export.ExportedProgram:
    """Exports in terms of the operators that forward calls, without decomposing them. This takes only a third of the time."""
    tensors = tuple(leaf.value for leaf in call.tensors)
    flat = storing(model, call)

    def once() -> torch.export.ExportedProgram:
        with (
            nothing_unseen(model),
            types_told(model),
            validated_on_device(),
            copies_traced(model),
            forgotten(model),
            recurrent_layers_by_shape(),
            called_as(model, flat, call.signature()),
        ):
            exported: torch.export.ExportedProgram = torch.export.export(model, tensors, strict=False)
            refuse_caught(exported, model, call.forward)
            unmasked(exported)
            return exported

    with attributes_as_buffers(model, state):
        try:
            return once()
        except Exception as error:
            if type(error).__name__ not in READS_DATA and not isinstance(error, Caught):
                raise
            with numbers_stay(model):
                return once()


@contextlib.contextmanager
def forgotten(model: torch.nn.Module) -> Iterator[None]:
    """Clears the caches of functions in the task's source (`functools.cache`) before and after an export, because an exporter's tensors hold no
    values."""
    names = source_of(model)
    classes = [value for value in names.values() if isinstance(value, type) and value.__module__ == names.get("__name__")]
    functions = [value for table in (names, *map(vars, classes)) for value in table.values()]
    held = [value.__func__ if isinstance(value, (staticmethod, classmethod)) else value for value in functions]
    memories = [value for value in held if isinstance(value, functools._lru_cache_wrapper)]
    try:
        for memory in memories:
            memory.cache_clear()
        yield
    finally:
        for memory in memories:
            memory.cache_clear()


@contextlib.contextmanager
def operators_listed_once() -> Iterator[None]:
    """Caches the dispatcher's list of operators across exports, because PyTorch requests the list six times in each."""
    utils: Any = importlib.import_module("torch._export.utils")
    before = getattr(utils, "_materialize_cpp_cia_ops", None)
    if before is None:
        yield
        return
    utils._materialize_cpp_cia_ops = functools.cache(before)
    try:
        yield
    finally:
        utils._materialize_cpp_cia_ops = before


@contextlib.contextmanager
def recurrent_layers_by_shape() -> Iterator[None]:
    """Computes only the result shapes of recurrent layers, which remain operators (`KEEP`), during an export. On a GPU, PyTorch otherwise traces
    every step to determine the shapes (one minute for six layers with 512 steps each), and version 2.11 reports the last states of an LSTM with one
    axis too many."""
    before = torch_decompositions.one_layer_lstm, torch_decompositions.one_layer_rnn
    torch_decompositions.one_layer_lstm, torch_decompositions.one_layer_rnn = _lstm_layer, _rnn_layer
    try:
        yield
    finally:
        torch_decompositions.one_layer_lstm, torch_decompositions.one_layer_rnn = before


def _lstm_layer(inp: torch.Tensor, hidden: Sequence[torch.Tensor], *args: Any, **kwargs: Any) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    """Returns empty results of an LSTM layer with the right shapes. `inp` has the axes (steps, batch, features), and each of `hidden` (batch,
    units)."""
    out = hidden[0].new_empty((inp.shape[0], *hidden[0].shape))
    return out, tuple(state.new_empty(state.shape) for state in hidden[:2])


def _rnn_layer(inp: torch.Tensor, hidden: torch.Tensor, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return hidden.new_empty((inp.shape[0], *hidden.shape)), hidden.new_empty(hidden.shape)


@contextlib.contextmanager
def attributes_as_buffers(model: torch.nn.Module, names: Sequence[str]) -> Iterator[None]:
    """Registers tensors in plain attributes (such as a hidden state) as buffers, because they are state that forward may change."""
    owners = [(model.get_submodule(path), name) for path, _, name in (where.rpartition(".") for where in names)]
    found = [(module, name, getattr(module, name)) for module, name in owners]
    for module, name, value in found:
        delattr(module, name)
        module.register_buffer(name, value, persistent=False)
    try:
        yield
    finally:
        for module, name, value in found:
            delattr(module, name)
            setattr(module, name, value)


def decompositions() -> dict[Any, Any]:
    """Returns torch's own decomposition table without the operators that are kept whole."""
    table = torch.export.default_decompositions()
    for overload in list(table):
        name = str(overload).removeprefix("aten.")
        if name in KEEP or name.split(".")[0] in KEEP:
            del table[overload]
    return table
