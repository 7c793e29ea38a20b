"""Explains why a model, or one of its statements, could not be captured, in terms of the model rather than the exporter."""

# sandboxed: words errors of the models that tasks define

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable

import torch

from verifier.parties.capturing.calling import SHARED
from verifier.parties.capturing.exporting.unseen import codes

_SCRIPT = "a script module (torch.jit.script) cannot be inspected"
IN_FORWARD = "gradients are computed inside forward (torch.autograd)"
_KEPT = r"fake tensor in the exported program"
_CAUSES = (
    (r"NestedTensor|nested_tensor|_nested_|cast NotImplemented to Tensor", "nested tensors are left to PyTorch"),
    (
        r"pack_padded|PackedSequence|zeros\(\): argument 'size' failed to unpack",
        "sequences are packed by lengths that are tensor values",
    ),
    (r"PendingUnbackedSymbol", "a number read from a tensor says where a view of a tensor begins that forward changes"),
    (
        r"GuardOnDataDependent|DataDependentOutput|data-dependent|size of a tensor depends on data",
        "a branch, an index or a size depends on tensor values",
    ),
    (r"ScriptMethod|ScriptFunction|torch\._C\.Script|RecursiveScriptModule", _SCRIPT),
    (
        r"does not require grad|autograd\.grad|element 0 of tensors",
        IN_FORWARD,
    ),
    (r"uninitialized parameter|UninitializedParameter", "a lazy module has no weights before its first call"),
    (
        r"inside functional transform|_increment_nesting|no attribute 'constant'|functorch|torch\.func\b|BatchedTensor|GradTrackingTensor|vmap",
        "a transform of torch.func (grad, jacrev, vmap) is applied to what a graph cannot express",
    ),
    (r"Tensor subclass|as_subclass|__torch_function__", "tensors of a class of the source's own are left to PyTorch"),
    (r"quantiz|Quantiz|quint8|qint8|qint32", "quantised tensors are left to PyTorch"),
    (
        r"SymInt|SymFloat|Symbolic|ConstraintViolation|Could not guard|Could not extract specialized",
        "a size or a number depends on values of tensors",
    ),
    (r"[Ss]parse|compressed tensor", "sparse tensors are left to PyTorch"),
    (r"format string passed to \w*Tensor", "it writes the value of a tensor into a text"),
    (r"data is not allocated yet|doesn't have storage|access data pointer", "it needs tensor values, which a graph does not have"),
    (r"'(Fake|Functional)?Tensor' object has no attribute", "it reads an attribute that the source set on a tensor"),
    (r"DynamicOutputShape", "the size of a result depends on tensor values"),
    (r"as_strided\(\) is non-compositional", "it changes in place a view that as_strided makes of another view"),
    (r"SyntaxError.*eval_with_key", "a module or a weight is named after a Python keyword, which torch.export cannot write"),
    (r"RecursionError|maximum recursion depth", "its functions call each other too deeply for torch.export"),
    (r"SyntaxError", "torch.export writes code for it that is not valid Python"),
    (r"NameError: name '(\w+)' is not defined", "it reads a name that the task's inputs leave without a value"),
    (r"UnboundLocalError", "it reads a variable that the task's inputs leave without a value"),
    (
        r"NotImplementedError|not implemented for|no fake impl|UnsupportedOperator|unsupported operator",
        "it calls an operator that torch.export cannot follow",
    ),
    (_KEPT, "it keeps a tensor of the export, as through an attribute or a list outside of the graph"),
    (r"^AssertionError: expected compiled_fn", "it leaves nothing to compute, or changes in place a tensor that also has another name"),
    (r"numpy\(\)|\.numpy|__array__", "values leave the graph for numpy"),
)  # fmt: skip


def reason(error: BaseException, model: torch.nn.Module | None = None) -> str:
    """Returns one sentence without a line number. `model` is searched for script modules, because they can cause many different errors that do not
    identify them as the cause."""
    text = f"{type(error).__name__}: {error}"
    trace = traceback.extract_tb(error.__traceback__)
    frames = " ".join(frame.line or "" for frame in trace)
    if any(frame.name == "merge_view_inputs" for frame in trace):
        return SHARED
    if re.search(_KEPT, text) and model is not None and any({"grad", "backward"} & {*code.co_names} for code in codes(model)):
        return IN_FORWARD
    for pattern, words in _CAUSES:
        if re.search(pattern, text) or "autograd.grad" in pattern and "autograd.grad(" in frames:
            return words
    if isinstance(error, TypeError) and model is not None and any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
        return _SCRIPT
    first = next((line for line in str(error).splitlines() if line.strip()), "")
    first = re.sub(r"^line \d+: ", "", first)
    return (first if isinstance(error, ValueError) else f"PyTorch's exporter cannot follow it ({type(error).__name__}: {first[:200]})")[:300]


def line_of(error: BaseException, file: str) -> int | None:
    """Returns the line of the innermost frame in the task's source, or else the line that the error message names."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    if lines:
        return lines[-1]
    told = re.match(r"line (\d+): ", str(error))
    return int(told[1]) if told else None


def without_parts(found: Iterable[tuple[int, str]]) -> list[tuple[int, str]]:
    """Returns the reasons by line, without those about an expression that is part of another one with the same reason in the same line.

    >>> without_parts({(2, "`s + 1` varies"), (2, "`round(s + 1)` varies"), (2, "`s` varies"), (3, "`s` varies")})
    [(2, '`round(s + 1)` varies'), (3, '`s` varies')]
    """
    reasons = sorted(found)
    quoted = [(line, *_quoted(why)) for line, why in reasons]
    kept = []
    for reason, (line, expression, rest) in zip(reasons, quoted, strict=True):
        within = (other for at, other, ending in quoted if (at, ending) == (line, rest) and other != expression)
        if not expression or not any(re.search(rf"(?<!\w){re.escape(expression)}(?!\w)", other) for other in within):
            kept.append(reason)
    return kept


def _quoted(why: str) -> tuple[str, str]:
    """Splits a reason into the expression with which it begins, if there is one, and the rest."""
    found = re.match(r"`([^`]+)`", why)
    return (found[1], why[found.end() :]) if found else ("", why)
