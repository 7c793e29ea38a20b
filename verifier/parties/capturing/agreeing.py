"""Compares an exported graph with the forward from which it was exported. An exporter may follow a forward and still compute something else: a
decomposition whose result has another type, a view of other memory, or a branch that depends on what only the export sees."""

# sandboxed: calls the models that tasks define

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

import torch

from verifier.float8 import wide
from verifier.parties.capturing.calling import FlatCall, rebuild
from verifier.parties.capturing.tracing import derived, undone
from verifier.parties.plain_state import PlainState, lasting

FAR = 0.1  # difference that counts, relative to an element and to the root mean square of its tensor; rounding causes smaller ones
MANY = 0.05  # share of elements that may differ by as much, such as the places of near equals
NUDGE = 4e-6  # relative change of inputs that is as small as rounding
MOST_BYTES = 1 << 30  # maximum size of the weights, inputs and results of a call that is compared; the weights are copied
MOST_BYTES_OF_PARTS = 1 << 27  # the same for each of possibly many parts
logger = logging.getLogger(__name__)


class Disagrees(ValueError):
    """Raised if a graph computes something other than forward."""


def compare(exported: torch.export.ExportedProgram, call: FlatCall, model: torch.nn.Module, plain: PlainState, most: int = MOST_BYTES) -> None:
    """Calls the graph and the forward once, with the tensors of `call` and the same random numbers, and restores the model's state. Raises
    `Disagrees` if their results or the state that they leave differ by more than rounding explains. A call that fails, or that exchanges more than
    `most` bytes, is not compared."""
    try:
        if _bytes(exported, model) > most:
            return
        plain.restore()
        graph = _Ran.of_graph(exported, call, model)
        forward = _Ran.of_forward(exported, call, model, plain, torch.Tensor.clone)
        why = graph.differs(forward)
        if not why:
            return
        if graph.alike(forward):  # only values differ, which may be the rounding of a model that enlarges it, or random
            nudged = _Ran.of_forward(exported, call, model, plain, _nudged)
            if nudged.differs(forward):
                return
    except Exception:  # the task's code may raise anything
        logger.debug("the graph was not compared", exc_info=True)
        return
    raise Disagrees(f"PyTorch's exporter makes a graph of it that computes something else: {why}")


class _Ran:
    """What a call returned and left. `values` holds the tensors by a name that a person understands; `others` holds the results that are no
    tensors."""

    def __init__(self, values: dict[str, torch.Tensor], others: list[Any]):
        self.values, self.others = values, others

    @classmethod
    def of_graph(cls, exported: torch.export.ExportedProgram, call: FlatCall, model: torch.nn.Module) -> _Ran:
        values = {f"argument {at + 1}": leaf.value for at, leaf in enumerate(call.tensors)}
        values |= {f"the state `{name}`": value for name, value in lasting(model).items()}
        given = iter(leaf.value for leaf in call.tensors)
        inputs: list[Any] = []
        for spec in exported.graph_signature.input_specs:
            kind, target = spec.kind.name, str(spec.target)
            if kind == "USER_INPUT":
                inputs.append(next(given))
            else:
                inputs.append(exported.state_dict[target] if target in exported.state_dict else exported.constants[target])
        outputs = _seeded(lambda: torch.fx.Interpreter(exported.graph_module).run(*inputs, enable_io_processing=False))
        made = zip(_names(exported), outputs, strict=True)
        return cls(values | {name: value.clone() for name, value in made if isinstance(value, torch.Tensor)}, list(call.results))

    @classmethod
    def of_forward(
        cls,
        exported: torch.export.ExportedProgram,
        call: FlatCall,
        model: torch.nn.Module,
        plain: PlainState,
        changed: Callable[[torch.Tensor], torch.Tensor],
    ) -> _Ran:
        tensors = derived([leaf.value for leaf in call.tensors], changed)
        waiting = iter(tensors)
        made = [rebuild(value, waiting) for value in [*call.args, *call.kwargs.values()]]  # with lists and dicts of its own
        again = FlatCall(call.forward, tuple(made[: len(call.args)]), dict(zip(call.kwargs, made[len(call.args) :], strict=True)), call.own)
        with undone(model, plain):
            returned = _seeded(lambda: again(*tensors))
            left = {**lasting(model), **{name: _held(model, name) for name in _targets(exported)}}
            values = {f"result {at + 1}": value for at, value in enumerate(returned)}
            values |= {f"argument {at + 1}": value for at, value in enumerate(tensors)}
            values |= {f"the state `{name}`": value for name, value in left.items()}
            return cls({name: value.clone() for name, value in values.items() if isinstance(value, torch.Tensor)}, again.results)

    def alike(self, other: _Ran) -> bool:
        """Returns whether all results have the types and sizes of the other call's."""
        same = all(value.shape == other.values[name].shape and value.dtype == other.values[name].dtype for name, value in self.values.items())
        return same and repr(self.others) == repr(other.others)

    def differs(self, other: _Ran) -> str:
        """Returns how this call differs from another, or "" if it does not."""
        for name, value in self.values.items():
            if name not in other.values:
                return f"{name} is missing"
            right = other.values[name]
            if value.dtype != right.dtype or value.shape != right.shape:
                return f"{name} is {_told(value)} instead of {_told(right)}"
            if apart(value, right):
                return f"{name} has other values"
        if repr(self.others) != repr(other.others):
            return "results that are no tensors have other values"
        return ""


def apart(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Returns whether more elements than `MANY` differ by more than `FAR`.

    >>> x = torch.linspace(1, 2, 8)
    >>> apart(x, x * 1.01), apart(x, x + 1)
    (False, True)
    """
    if one.numel() == 0:
        return False
    if one.is_complex():
        one, other = torch.view_as_real(one.resolve_conj()), torch.view_as_real(other.resolve_conj())
    if not one.is_floating_point():
        return one.numel() > 1 and float((one != other).double().mean()) > MANY
    a, b = wide(one).double(), wide(other).double()
    size = a.abs() + a[a.isfinite()].square().mean().sqrt().nan_to_num(0.0) + 1e-30
    same = (a == b) | a.isnan() & b.isnan() | ((a - b).abs() <= FAR * size)
    return 1 - float(same.double().mean()) > MANY


def _seeded(run: Callable[[], Any]) -> Any:
    with torch.no_grad(), torch.random.fork_rng(devices=range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []):
        torch.manual_seed(0)
        return run()


def _nudged(tensor: torch.Tensor) -> torch.Tensor:
    return tensor * (1 + NUDGE) if tensor.is_floating_point() and tensor.dtype.itemsize > 2 else tensor.clone()


def _names(exported: torch.export.ExportedProgram) -> list[str]:
    """Returns a name for each output of the graph, as in `_Ran.values`."""
    users = [spec.arg.name for spec in exported.graph_signature.input_specs if spec.kind.name == "USER_INPUT"]
    names, count = [], 0
    for spec in exported.graph_signature.output_specs:
        if spec.kind.name == "USER_OUTPUT":
            count += 1
            names.append(f"result {count}")
        elif spec.kind.name == "USER_INPUT_MUTATION":
            names.append(f"argument {users.index(str(spec.target)) + 1}")
        else:
            names.append(f"the state `{spec.target}`")
    return names


def _targets(exported: torch.export.ExportedProgram) -> list[str]:
    return [str(spec.target) for spec in exported.graph_signature.output_specs if spec.kind.name in ("BUFFER_MUTATION", "PARAMETER_MUTATION")]


def _held(model: torch.nn.Module, target: str) -> Any:
    owner: Any = model
    for part in target.split("."):
        owner = getattr(owner, part)
    return owner


def _told(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def _bytes(exported: torch.export.ExportedProgram, model: torch.nn.Module) -> int:
    ends = [node.meta.get("val") for node in exported.graph.nodes if node.op in ("placeholder", "output")]
    output = next(node for node in exported.graph.nodes if node.op == "output")
    ends += [value.meta.get("val") for value in output.all_input_nodes]
    sizes = [math.prod(map(int, value.shape)) * value.dtype.itemsize for value in ends if isinstance(value, torch.Tensor)]
    return sum(sizes) + sum(value.numel() * value.dtype.itemsize for value in lasting(model).values())
