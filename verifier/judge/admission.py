"""The `admit` job: determines whether a task can run here, what its properties are, and whether it tests anything."""

from __future__ import annotations

import contextlib
import math
import random
import re
import statistics
import time
from dataclasses import dataclass

import torch

from verifier.confinement.layers import protection
from verifier.correctness.chance import stochastic
from verifier.correctness.examining import equal
from verifier.correctness.expectation import SHORT, Expectations
from verifier.correctness.fingerprint import Fingerprint
from verifier.correctness.triviality import trivial_guess
from verifier.devices.base import DeviceError, NoRoom
from verifier.float8 import wide
from verifier.jobs import AdmitJob
from verifier.judge.foreseeing import Foreseen
from verifier.judge.memory import Ledger, too_little
from verifier.judge.party_failure import PartyFailure, without_gpu
from verifier.judge.pool import Pool
from verifier.judge.session import ReferenceSession, Values
from verifier.layout import LayoutError, Spec, decode, describe, place
from verifier.source import Problem, SourceError, parse, sha256, top_level
from verifier.task import Admission, Task, TensorSpec
from verifier.timing.blocks import Caller, kept

ESTIMATE_CALLS = 5
SLOW_SECONDS = 15.0  # if loading and three eager calls take longer than this, no fp64 run is started
_HINTS = {
    "timed_out": "make it smaller, or end the loop",
    "memory": "use smaller tensors",
    "flood": "remove the prints",
    "crashed": "it ends the interpreter; look at native code and sys.exit",
}


def admit(job: AdmitJob, pool: Pool, seed: int, capture: Foreseen | None = None) -> Admission:
    """Examines a task. Faults in the task are returned as problems with a line number and are never raised. `capture` is the process of the capture
    that follows; it begins after the task's source has been read, and is frozen while calls are timed. Raises `Cancelled` and `DeviceError`."""
    sha = sha256(job.task_source)
    result = Admission(task=sha, ok=False, protection=_protected())
    try:
        Task.read(job.task_source)
    except SourceError as error:
        return result.model_copy(update={"problems": error.problems})
    session = ReferenceSession(pool, job.task_source, job.precision, job.mode, watch=True)
    session.party.give_time(pool.limits.admission)
    if capture is not None:
        capture.begin()
    result = result.model_copy(update={"protection": _protected()})  # starting the first party may have revealed that a layer failed
    try:
        return _examine(session, result, seed, capture)
    except PartyFailure as failure:
        if failure.error_class == SHORT:
            _may_be_others(pool, task_failure(failure))
        return result.model_copy(update={"problems": [task_problem(failure, job.task_source)]})
    except LayoutError as error:
        return result.model_copy(update={"problems": [Problem(message=str(error))]})
    except NoRoom as error:
        problem = _too_large(pool, job.task_source, f"a verification needs too much memory: {error}")
        return result.model_copy(update={"problems": [problem]})
    except torch.OutOfMemoryError:
        problem = _too_large(pool, job.task_source, too_little(pool.device, "to compare this task's outputs"))
        return result.model_copy(update={"problems": [problem]})
    finally:
        session.close()


def _too_large(pool: Pool, source: str, message: str, need: int = 0) -> Problem:
    """Explains why a task is too large. `need` is the number of bytes required, if known. If it exceeds the device's total memory, the task is too
    large regardless of other users."""
    if need <= (pool.device.total_bytes() or 0):
        _may_be_others(pool, message)
    return Problem(line=forward_line(source), message=message, hint="use smaller tensors")


def _may_be_others(pool: Pool, message: str) -> None:
    """Raises `DeviceError` if other verifications share the device. They may hold the missing memory, so the task is not at fault."""
    if pool.gate.others():
        raise DeviceError(f"{message}; other verifications use {pool.device.name} at the moment: try again once they have ended")


def _protected() -> list[str]:
    found = protection()
    return [*found.layers, *(f"missing: {layer}" for layer in found.missing)]


def _examine(session: ReferenceSession, result: Admission, seed: int, capture: Foreseen | None) -> Admission:
    begin = time.monotonic()
    session.load(seed)
    inputs = session.inputs(seed + 1, count=True)
    one = session.eager(inputs, 1)
    session.rollback()
    mutated = list(session.mutated)
    if not one.outputs.tensors:
        problem = Problem(
            line=forward_line(session.source), message="forward returns no tensor", hint="return a tensor, or a tuple, list or dict of tensors"
        )
        return result.model_copy(update={"problems": [problem]})
    outputs = [kept(tensor) for tensor in one.outputs.tensors]
    two = session.eager(inputs, 2)
    session.rollback()
    chance = stochastic(outputs, [kept(tensor) for tensor in two.outputs.tensors], one.drew or two.drew)
    del two
    other = session.inputs(seed + 2)
    three = session.eager(other, 1)
    session.rollback()
    if session.remembers:  # state that calls leave outside the state dict must not change the number of tensors that later calls return
        for _ in range(2):
            session.eager(inputs, 1)
        session.take_state(session.state_tensors)
    problems = []
    for index, tensor in enumerate(one.outputs.tensors):
        if tensor.is_floating_point() and bool((lost := wide(tensor).isnan()).any()):
            share = float(lost.double().mean())
            message = f"output {index} holds NaN ({share:.1%} of its elements)"
            problems.append(
                Problem(line=forward_line(session.source), message=message, hint="check divisions, logarithms and square roots in forward")
            )
    deterministic = _again(session, inputs, 1, outputs)
    precise = _precise(session, inputs, seed) if time.monotonic() - begin < SLOW_SECONDS else Precise(oracle="eager calls are too slow for it")
    guess = trivial_guess(inputs, one.outputs, other, three.outputs, precise.limits) or precise.noise
    flags = ["trivial"] if guess else []
    if chance:
        flags.append("stochastic")
    shape = one.outputs.specs
    held = sum(values.nbytes for values in (inputs, other, one.outputs, three.outputs))
    need, free = _memory(session, inputs, shape, held)
    if need is not None and free is not None and need > free:
        message = f"a verification needs {need / 2**30:.1f} GiB of device memory at its largest moment, and {free / 2**30:.1f} GiB are there"
        problems.append(_too_large(session.pool, session.source, message, need))
    with capture.still() if capture is not None else contextlib.nullcontext():
        eager_ms = _estimate(session, inputs, shape) if not problems else None
    state = session.state
    update = {
        "ok": not problems,
        "problems": problems,
        "flags": flags,
        "inputs": _arguments(inputs),
        "outputs": [_task_spec(spec) for spec in shape],
        "output_tree": describe(one.outputs.tree),
        "parameters": sum(entry.spec.numel for entry in state if entry.spec.floating and entry.alias is None),
        "state_bytes": sum(entry.spec.nbytes for entry in state if entry.alias is None),
        "trivial_by": guess,
        "deterministic": deterministic,
        "oracle": precise.oracle,
        "eager_error": precise.error,
        "error_bound": precise.bound,
        "decided": precise.decided,
        "memory_bytes": need,
        "mutates": mutated,
        "eager_ms": eager_ms,
    }
    return Admission.model_validate({**result.model_dump(), **update})


@dataclass
class Precise:
    """The properties of a task that its fp64 run reveals."""

    limits: list[float] | None = None
    noise: str = ""
    oracle: str = ""
    error: float | None = None  # of the output that eager computes least accurately
    bound: float | None = None
    decided: float | None = None


def _precise(session: ReferenceSession, inputs: Values, seed: int) -> Precise:
    expectations = Expectations(session, random.Random(seed))
    expected = expectations.expect(inputs, 1, strict=True)
    session.rollback()
    floating = [leaf for leaf in expected.leaves if leaf.alternative.is_floating_point()]
    noisy = expected.oracle is not None and bool(floating) and all(not leaf.precise for leaf in floating)
    limits = [leaf.limit for leaf in expected.leaves] if expected.oracle is not None and not noisy else None
    found = Precise(limits, "rounding noise: PyTorch and fp64 do not agree at all" if noisy else "", expectations.place())
    if expected.oracle is not None:
        found.decided = max((leaf.share for leaf in expected.leaves), default=None)
        worst = max((leaf for leaf in floating if leaf.precise), key=lambda leaf: leaf.error, default=None)
        if worst is not None and math.isfinite(worst.error):
            found.error, found.bound = worst.error, worst.limit
    return found


def _peak(session: ReferenceSession) -> int | None:
    value = session.party.ask("peak", {}, session.limits.call).message.get("bytes")
    return value if isinstance(value, int) else None


def _again(session: ReferenceSession, inputs: Values, rng: int, outputs: list[torch.Tensor | Fingerprint]) -> bool:
    """Returns whether another call gives the same result."""
    run = session.eager(inputs, rng)
    session.rollback()
    return all(equal(a, kept(b)) for a, b in zip(outputs, run.outputs.tensors, strict=True))


def _memory(session: ReferenceSession, inputs: Values, outputs: list[Spec], held: int) -> tuple[int | None, int | None]:
    """Returns the peak bytes of a verification (`memory.py`) and the bytes available to it, which are the free memory, the memory that this job has
    taken, and the memory that the judge has `held`. On the CPU, each process has its own limit."""
    device = session.pool.device
    if device.kind == "cpu":
        return _peak(session), session.limits.memory
    state = sum(entry.spec.nbytes for entry in session.state if entry.alias is None)
    ledger = Ledger(inputs.nbytes, place(outputs)[1], state, session.eager_bytes, session.oracle_bytes, device.process_bytes)
    session.rest(device.total_bytes() or 0)
    free = device.free_bytes()
    return ledger.peak(), None if free is None else free + held + 2 * state + 2 * device.process_bytes


def _estimate(session: ReferenceSession, inputs: Values, outputs: list[Spec]) -> float:
    session.hide()
    caller = Caller(session.party, outputs, session.limits.call)
    caller.call(inputs, 1)
    samples: list[float] = []
    begin = time.monotonic()
    while len(samples) < ESTIMATE_CALLS and (len(samples) < 1 or time.monotonic() - begin < 5):
        samples.append(caller.call(inputs, 1).inner / 1e6)
    return statistics.median(samples)


def _task_spec(spec: Spec) -> TensorSpec:
    return TensorSpec(shape=spec.shape, dtype=spec.dtype, stride=spec.stride)


def _arguments(values: Values) -> list[TensorSpec | int | float | bool | str | None]:
    decoded = decode(values.tree, [_task_spec(spec) for spec in values.specs])
    return [item if isinstance(item, (TensorSpec, int, float, bool, str, type(None))) else str(item)[:200] for item in decoded]


def forward_line(source: str) -> int | None:
    """Returns the line number on which `Model.forward` begins."""
    import ast

    for node in parse(source).body:
        if isinstance(node, ast.ClassDef) and node.name == "Model":
            return next((item.lineno for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "forward"), node.lineno)
    return None


def keyword_only(source: str, method: str) -> list[str]:
    """Returns the names of the parameters that a method of `Model` takes by keyword only."""
    import ast

    for node in parse(source).body:
        if isinstance(node, ast.ClassDef) and node.name == "Model":
            return next(
                ([one.arg for one in item.args.kwonlyargs] for item in node.body if isinstance(item, ast.FunctionDef) and item.name == method), []
            )
    return []


def begin_line(failure: PartyFailure, source: str) -> int | None:
    """Returns the first line of the code that failed, for a failure that has no line of its own: a function that cannot be called as written, or a
    value that cannot be passed on."""
    import ast

    names = top_level(parse(source))
    model = names.get("Model")
    if not isinstance(model, ast.ClassDef):
        return None
    functions = [item for item in model.body if isinstance(item, ast.FunctionDef)]
    said = re.match(r"(get_inputs|get_init_inputs)\b", failure.message)
    function = names.get(said[1] if said else "get_inputs" if failure.request == "inputs" else "")
    if function is not None:
        return function.lineno
    method = re.match(r"Model\.(\w+)\(\)", failure.message)
    named = method[1] if method else "forward" if failure.request in _CALLS else ""
    return next((item.lineno for item in reversed(functions) if item.name == named), model.lineno)


_CALLS = ("run", "call", "oracle")
_STEPS = {
    "inputs": "get_inputs",
    "run": "forward",
    "call": "forward",
    "oracle": "forward in fp64",
    "capture": "the capture of the graph",
    "take_state": "loading other weights",
    "rollback": "the return to an earlier state",
    "redraw": "another construction of the model",
}


def task_problem(failure: PartyFailure, source: str) -> Problem:
    """Describes the failure of a confined task as a problem with a line and a cause."""
    step = _STEPS.get(failure.request, "the import or the constructor")
    if failure.request in ("start", "role", "attach"):
        raise DeviceError(f"a confined process could not be started: {failure.message} {failure.detail[-500:]}".strip())
    if failure.kind == "raised":
        said = without_gpu(failure.message)
        if said != failure.message:
            return Problem(line=failure.line, message=f"{step} needs a GPU: choose cuda:0", hint="such a task runs only on a verifier with a GPU")
        where = f"{step}: " if failure.error_class == "LayoutError" else f"{failure.error_class} in {step}: "
        line = failure.line or (begin_line(failure, source) if failure.error_class in ("LayoutError", "TypeError") else None)
        return Problem(line=line, message=where + said[:600], hint=_raised_hint(failure, source))
    line = failure.line if failure.line is not None else (forward_line(source) if failure.request in ("run", "call") else None)
    return Problem(line=line, message=f"{step}: {failure.message}", hint=_HINTS.get(failure.kind, ""))


def _raised_hint(failure: PartyFailure, source: str) -> str:
    text = failure.message
    if failure.error_class == "SystemExit":
        return _HINTS["crashed"]
    if "before Module.__init__() call" in text:
        return "call super().__init__() first in the constructor"
    if failure.error_class == "TypeError" and failure.line is None and re.search(r"positional argument|keyword argument|keyword-only", text):
        if called := re.match(r"(get_inputs|get_init_inputs)\(\)", text):
            return f"{called[1]} is called without arguments"
        if (called := re.match(r"Model\.(forward|__init__)\(\)", text)) is not None:
            if named := keyword_only(source, called[1]):
                names = " and ".join(named)
                return f"values are passed by position: remove the `*` before {names}, or submit the module without get_inputs and get_init_inputs"
            where = "get_inputs" if ".forward()" in text else "get_init_inputs"
            return f"{where} returns a list with one value for each argument"
    if "can't allocate memory" in text or "out of memory" in text or failure.error_class == "MemoryError":
        return "use smaller tensors"
    if "Read-only file system" in text or "write to the file system" in text:
        return "a task computes from its arguments only"
    if failure.error_class in ("PermissionError", "gaierror", "ConnectionError") or "Operation not permitted" in text:
        return "there is no network and no other process in the sandbox"
    if "prints more than" in text:
        return "remove the prints"
    if failure.error_class == "ModuleNotFoundError":
        return "this module is not installed on the verifier's host: choose another device, or have it installed there"
    return ""


def task_failure(failure: PartyFailure) -> str:
    """Describes the failure in one sentence."""
    step = _STEPS.get(failure.request, "the import or the constructor")
    where = f"line {failure.line}: " if failure.line else ""
    return f"the task failed in {step}: {where}{failure.error_class + ': ' if failure.error_class else ''}{without_gpu(failure.message)[:600]}"
