"""Values that cross a sandbox boundary: a JSON tree that refers to tensors by number, and the offsets of those tensors in an arena.

Tree nodes: ``{"t": 3}`` a tensor, ``{"v": 1.5}`` a plain value, ``{"l": [...]}`` a list, ``{"u": [...]}`` a tuple, ``{"d": {...}}`` a dict,
``{"dtype": "float32"}`` a torch dtype. Arguments may also contain the nodes that `objects` defines. Specs come from an untrusted peer, so they are
checked before memory is touched.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, ValidationError

from verifier import float8, objects
from verifier.devices.base import ALIGNMENT

_PLAIN = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64", "complex128")
DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in (*_PLAIN, *float8.NAMES)}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
MAX_TENSORS = 4096
MAX_DEPTH = 16  # maximum nesting of lists, tuples and dicts; a peer's tree could otherwise overflow the stack
MAX_BYTES = 64 << 30


class LayoutError(ValueError):
    """Raised for a value or a spec that cannot cross the boundary. The message names the value or spec."""


def unsupported(dtype: torch.dtype) -> str:
    """Explains how a task can pass a tensor whose type the verifier does not support; empty if it cannot."""
    quantised = dtype in (torch.qint8, torch.quint8, torch.qint32, torch.quint4x2)
    return "" if quantised or dtype.is_complex else f"; keep its bytes as torch.uint8 and read them by `.view({dtype})` in forward"


class Spec(BaseModel):
    """A tensor as data. A null `stride` means contiguous. `left` names the work that a view leaves to its reader: negating or conjugating its
    elements."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    shape: tuple[int, ...]
    dtype: str
    stride: tuple[int, ...] | None = None
    left: Literal["neg", "conj"] | None = None

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Spec:
        if tensor.dtype not in NAMES:
            raise LayoutError(f"a tensor of dtype {tensor.dtype} is not supported{unsupported(tensor.dtype)}")
        stride = None if tensor.is_contiguous() or not _dense(tensor.shape, tensor.stride()) else tuple(tensor.stride())
        left: Literal["neg", "conj"] | None = "neg" if tensor.is_neg() else "conj" if tensor.is_conj() else None
        return cls(shape=tuple(tensor.shape), dtype=NAMES[tensor.dtype], stride=stride, left=left)

    @property
    def torch_dtype(self) -> torch.dtype:
        return DTYPES[self.dtype]

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.numel * DTYPES[self.dtype].itemsize

    @property
    def floating(self) -> bool:
        return DTYPES[self.dtype].is_floating_point

    @property
    def inexact(self) -> bool:
        """Returns whether the elements are floating-point or complex numbers, including float8."""
        return self.floating or DTYPES[self.dtype].is_complex

    def describe(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


def _dense(shape: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    """Returns whether the elements fill their storage without gaps or overlaps, as in a permuted contiguous tensor."""
    expected = 1
    for step, size in sorted((step, size) for size, step in zip(shape, stride, strict=True) if size != 1):
        if step != expected:
            return False
        expected *= size
    return True


def read_specs(values: Any, limit: int = MAX_BYTES) -> list[Spec]:
    """Reads specs from a frame. Raises `LayoutError` for anything but a list of valid specs with a total of at most `limit` bytes."""
    if not isinstance(values, list) or len(values) > MAX_TENSORS:
        raise LayoutError("tensor descriptions are not a list, or too many")
    specs = []
    total = 0
    for value in values:
        try:
            spec = Spec.model_validate(value)
        except ValidationError:
            raise LayoutError("a tensor description is malformed") from None
        if spec.dtype not in DTYPES or len(spec.shape) > 32 or any(size < 0 for size in spec.shape):
            raise LayoutError("a tensor description is not sound")
        if spec.stride is not None and (len(spec.stride) != len(spec.shape) or not _dense(spec.shape, spec.stride)):
            raise LayoutError("a tensor description has unsound strides")
        total += spec.nbytes
        if total > limit:
            raise LayoutError(f"the tensors are larger than {limit >> 20} MiB together")
        specs.append(spec)
    return specs


def place(specs: list[Spec], start: int = 0) -> tuple[list[int], int]:
    """Returns aligned offsets of tensors placed consecutively from `start`, and the end of the last one."""
    offsets = []
    at = start
    for spec in specs:
        at += -at % ALIGNMENT
        offsets.append(at)
        at += spec.nbytes
    return offsets, at + (-at % ALIGNMENT)


def view(flat: torch.Tensor, spec: Spec, offset: int) -> torch.Tensor:
    """Returns the tensor at `offset` in an arena's flat uint8 view. Raises `LayoutError` if it extends beyond the arena's end."""
    if offset < 0 or offset + spec.nbytes > flat.numel():
        raise LayoutError("a tensor lies outside its arena")
    part = flat[offset : offset + spec.nbytes].view(DTYPES[spec.dtype])
    return part.view(spec.shape) if spec.stride is None else part.as_strided(spec.shape, spec.stride)


def encode(value: Any, tensors: list[torch.Tensor], depth: int = 0, whole: bool = False) -> Any:
    """Encodes a value as a tree and appends its tensors to `tensors`. Raises `LayoutError`, which names the value that cannot cross the boundary.
    Pass `whole` for arguments, whose objects are recreated on the other side. For results, only the fields are compared."""
    if depth > MAX_DEPTH:
        raise LayoutError(f"values are nested more than {MAX_DEPTH} deep")

    def again(item: Any) -> Any:
        return encode(item, tensors, depth + 1, whole)

    if whole and (isinstance(value, torch.nn.Parameter) and depth > 1 or not isinstance(value, (torch.Tensor, torch.dtype))):
        try:
            if (found := objects.encoded(value, again)) is not None:
                return found
        except objects.NotNamed as error:
            raise LayoutError(f"an argument cannot be passed on: {error}") from None
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided:
            raise LayoutError(f"a tensor of layout {value.layout} is not supported; pass its indices and values, and construct it in forward")
        tensors.append(value.detach())
        return {"t": len(tensors) - 1}
    if isinstance(value, float) and not whole:  # a result that is read from a tensor is compared as a number, not as text
        tensors.append(torch.tensor(value, dtype=torch.float32))
        return {"t": len(tensors) - 1}
    if value is None or isinstance(value, (bool, int, float, str)):
        return {"v": value}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, list):
        return {"l": [again(item) for item in list.__iter__(value)]}  # bypasses a subclass's own iterator
    if isinstance(value, tuple):
        return {"u": [again(item) for item in tuple.__iter__(value)]}
    if isinstance(value, dict) and all(isinstance(key, (str, int)) for key in dict.keys(value)):
        return {"d": {str(key): again(item) for key, item in dict.items(value)}}
    if hasattr(value, "to_tuple"):  # an output class of a model library
        return again(value.to_tuple())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {"d": {one.name: again(getattr(value, one.name)) for one in dataclasses.fields(value)}}
    raise LayoutError(f"a value of type {type(value).__name__!r} cannot be passed on; use tensors, numbers, strings, lists, tuples and dicts")


def decode(tree: Any, tensors: list[Any], depth: int = 0, resolve: objects.Resolve | None = None) -> Any:
    """Decodes the value of a tree. Raises `LayoutError` if the tree is malformed. `resolve` finds classes by name; without it, objects are decoded to
    their fields."""
    if depth > MAX_DEPTH:
        raise LayoutError(f"values are nested more than {MAX_DEPTH} deep")
    if isinstance(tree, dict) and len(tree) == 1:
        (kind, body), *_ = tree.items()
        if kind == "t" and isinstance(body, int) and 0 <= body < len(tensors):
            return tensors[body]
        if kind == "v":
            return body
        if kind == "dtype" and body in DTYPES:
            return DTYPES[body]
        if kind in ("l", "u") and isinstance(body, list):
            items = [decode(item, tensors, depth + 1, resolve) for item in body]
            return items if kind == "l" else tuple(items)
        if kind == "d" and isinstance(body, dict):
            return {key: decode(item, tensors, depth + 1, resolve) for key, item in body.items()}
        if kind in ("o", "g", "p", "m", "device"):
            try:
                return objects.decoded(kind, body, lambda item: decode(item, tensors, depth + 1, resolve), resolve)
            except (KeyError, IndexError, TypeError, ValueError, AttributeError, ImportError, RuntimeError) as error:
                raise LayoutError(f"an object cannot be made: {error}") from None
    raise LayoutError("a value is malformed")


def describe(tree: Any, depth: int = 0) -> str:
    """Describes a tree in readable form: "tensor", "(tensor, tensor)", "{'y': tensor}". Lists and tuples of outputs have the same description."""
    if not isinstance(tree, dict) or len(tree) != 1 or depth > MAX_DEPTH:
        return "?"
    (kind, body), *_ = tree.items()
    if kind == "t":
        return "tensor"
    if kind in ("l", "u") and isinstance(body, list):
        return "(" + ", ".join(describe(item, depth + 1) for item in body) + ("," if len(body) == 1 else "") + ")"
    if kind == "d" and isinstance(body, dict):
        return "{" + ", ".join(f"{key!r}: {describe(item, depth + 1)}" for key, item in body.items()) + "}"
    return str(body)


def leaf_names(tree: Any, prefix: str = "out") -> list[str]:
    """Returns a name for each tensor of a tree, in numerical order: "out", "out[0]", "out['y']"."""
    found: dict[int, str] = {}

    def walk(node: Any, name: str) -> None:
        if not isinstance(node, dict) or len(node) != 1:
            return
        (kind, body), *_ = node.items()
        if kind == "t":
            found[body] = name
        elif kind in ("l", "u"):
            for index, item in enumerate(body):
                walk(item, f"{name}[{index}]")
        elif kind == "d":
            for key, item in body.items():
                walk(item, f"{name}[{key!r}]")

    walk(tree, prefix)
    return [found[index] for index in sorted(found)]
