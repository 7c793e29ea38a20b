"""Correctness: several calls of the program in its runner, each judged against the reference's fp64 result for the same secret inputs."""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from verifier.correctness import (
    DISTRIBUTIONS,
    NO_ORACLE,
    NORM,
    SMALL,
    Judgement,
    bound,
    distance,
    epsilon,
    judge,
    randomise_state,
    same_form,
)
from verifier.devices.base import Observation
from verifier.layout import describe, leaf_names, place, read_specs
from verifier.pool import Party, PartyFailure
from verifier.report import Finding, Kernel, Trial
from verifier.session import ReferenceSession, Values, fetch, give
from verifier.task import Flag
from verifier.timing import Call, Caller

CHAOTIC = 1e-2  # where eager differs from fp64 by more than this, fp64 is no oracle for fp32 (or random numbers are drawn)


@dataclass
class Subject:
    """A runner that has imported the program."""

    runner: Party
    caller: Caller | None = None


@dataclass
class Verdict:
    wrong: str = ""
    weights: str = "loaded"
    flags: list[Flag] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


@dataclass
class Expected:
    """What one call of the task gives: per output the tensor to compare with and the bound; the same for state it changes."""

    outputs: Values
    references: list[torch.Tensor]
    alternatives: list[torch.Tensor]
    bounds: list[float]
    errors: list[float]
    state: list[torch.Tensor]
    state_bounds: list[float]
    aliased: list[bool]
    changed_inputs: list[int]


class Skipped(Exception):
    """A distribution that the task itself does not bear."""


class Trials:
    def __init__(self, reference: ReferenceSession, seed: int, full: bool, on_progress: Callable[[str], None]):
        self.reference = reference
        self.limits = reference.limits
        self.seed = seed
        self.full = full
        self.on_progress = on_progress
        self.draws = random.Random(seed)  # a seed's every use is a number of its own, in a fixed order
        self.weight_seed = self.draws.getrandbits(32)
        self.done: list[Trial] = []
        self.subject: Subject | None = None
        self.stochastic = False
        self.flags: list[Flag] = []
        self.errors: list[float] = []  # PyTorch's own, per output, the largest over trials with the task's inputs
        self.original: list[torch.Tensor] = []
        self.seeded = False

    def prepare(self) -> None:
        """Loads the task under the evaluation's seed and learns whether it is stochastic. Raises `PartyFailure` for the task's faults."""
        self.reference.load(self.weight_seed)
        self.original = self.reference.state_tensors
        self.first_inputs = self.reference.inputs(self.draws.getrandbits(32), count=True)
        one = self.reference.eager(self.first_inputs, 1)
        self.reference.rollback()
        two = self.reference.eager(self.first_inputs, 2)
        self.reference.rollback()
        self.stochastic = not all(_equal(a, b) for a, b in zip(one.outputs.tensors, two.outputs.tensors, strict=True))
        del two
        other = self.reference.inputs(self.draws.getrandbits(32))
        three = self.reference.eager(other, 1)
        self.reference.rollback()
        self.expected_specs = one.outputs.specs
        self.tree = one.outputs.tree
        if self.stochastic:
            self.flags.append("stochastic")
        if is_trivial(self.first_inputs, one.outputs, other, three.outputs):
            self.flags.append("trivial")

    # The program's side

    def run(self, subject: Subject) -> Verdict:
        """All trials; the first that is wrong ends them. Raises `PartyFailure` for the program's crashes, `LayoutError` for unusable answers."""
        verdict = Verdict(flags=list(self.flags))
        self.done = []
        self.reference.take_state(self.original)
        refused = self._construct(subject, self.original)
        self.seeded = bool(refused) and bool(self.reference.state)
        if self.seeded:
            verdict.weights = "seeded"
            message = f"the task's state dict does not load strictly, so both sides were constructed under one seed: {_first_lines(refused)}"
            verdict.findings.append(Finding(rule="weights", severity="note", message=message, source="runtime"))
        begin = time.monotonic()
        for number, (name, seed, values, weights) in enumerate(self._plan()):
            if number >= 4 and time.monotonic() - begin > self.limits.correctness:
                break
            if weights is not None and self.seeded:
                continue
            if weights is not None:
                self.reference.take_state(weights)
                self._construct(subject, weights)
            try:
                trial = self._trial(name, seed, values)
            except Skipped as reason:
                self.on_progress(f"{name}: skipped, {reason}")
                trial = None
            if trial is not None:
                self.done.append(trial)
                self.on_progress(f"{name}: {'ok' if trial.ok else trial.detail}")
                if not trial.ok:
                    if weights is None or not all(earlier.ok for earlier in self.done[:-1]):
                        verdict.wrong = f"{name}: {trial.detail}"
                        return verdict
                    # Right as constructed, wrong once other weights are loaded.
                    self.done.pop()
                    self.seeded = True
                    verdict.weights = "seeded"
                    message = (
                        f"results are right only with the weights that the constructor makes; after another state dict is loaded: {trial.detail}"
                    )
                    verdict.findings.append(Finding(rule="weights", severity="downgrade", message=message, source="runtime"))
            if weights is not None:
                self.reference.take_state(self.original)
                self._construct(subject, self.original)
        return verdict

    def reconstruct(self, subject: Subject) -> None:
        """The program in another runner, as it was when the trials ended."""
        self._last = None
        self.reference.take_state(self.original)
        self._construct(subject, self.original)

    def _construct(self, subject: Subject, state: list[torch.Tensor]) -> str:
        """A fresh `ModelNew`; returns why the state dict was refused, or nothing."""
        self.subject = subject
        reference, runner = self.reference, subject.runner
        specs = [entry.spec for entry in reference.state]
        message: dict[str, Any] = {
            "seed": self.weight_seed,
            "init": {"tree": reference.init.tree, **give(runner, "init", reference.init.tensors, reference.init.specs)},
            "names": [entry.name for entry in reference.state],
            "state": give(runner, "state", state, specs) if not self.seeded else None,
        }
        answer = runner.ask("construct", message, self.limits.load)
        subject.caller = Caller(runner, self.expected_specs, self.limits.call)
        return answer.text("refused")

    def _plan(self) -> list[tuple[str, int, Values, list[torch.Tensor] | None]]:
        """Name, seed, inputs and weights of each trial, cheap and telling ones first; inputs are drawn as they are needed."""
        reference = self.reference

        def fresh() -> tuple[int, Values]:
            seed = self.draws.getrandbits(32)
            return seed, reference.inputs(seed)

        def plan() -> Any:
            yield "task inputs 1", self.draws.getrandbits(32), self.first_inputs, None
            seed, values = fresh()
            yield "task inputs 2", seed, values, None
            if any(entry.spec.floating for entry in reference.state):
                seed, values = fresh()
                yield "random weights", seed, values, self._other_weights(seed)
            for variant in range(reference.variants):
                seed = self.draws.getrandbits(32)
                yield f"input variant {variant + 1}", seed, reference.inputs(seed, variant), None
            for distribution in DISTRIBUTIONS:
                seed, values = fresh()
                reshaped = reference.reshaped(values, distribution, seed)
                if reshaped is not None:
                    yield distribution, seed, reshaped, None
            if self.full:
                for count in itertools.count(3):
                    if count > 5:
                        break
                    seed, values = fresh()
                    yield f"task inputs {count}", seed, values, None
                if any(entry.spec.floating for entry in reference.state):
                    seed, values = fresh()
                    reshaped = reference.reshaped(values, "heavy-tailed", seed)
                    yield "random weights 2", seed, reshaped or values, self._other_weights(seed)

        return plan()

    def _other_weights(self, seed: int) -> list[torch.Tensor]:
        generator = torch.Generator(device=self.original[0].device).manual_seed(seed)
        by_name: dict[str, torch.Tensor] = {}
        for entry, tensor in zip(self.reference.state, self.original, strict=True):
            if entry.alias in by_name:
                by_name[entry.name] = by_name[entry.alias]
                continue
            changed = tensor.clone()
            randomise_state(entry.name, changed, entry.parameter, generator)
            by_name[entry.name] = changed
        return list(by_name.values())

    # One trial

    def expect(self, values: Values, rng: int, strict: bool) -> Expected:
        """Runs the reference: fp64 first, from the present state, then eager, which moves the state on. Raises `Skipped` where the task does not
        bear these inputs and `strict` is false."""
        reference = self.reference
        oracle = None
        if not self.stochastic:
            try:
                oracle = reference.oracle(values, rng)
            except PartyFailure as failure:
                if failure.kind != "raised":
                    raise
                if not strict:
                    raise Skipped("the task does not accept such inputs") from None
        wiggled = None
        if oracle is not None and any(spec.floating and spec.numel < SMALL for spec in oracle.outputs.specs):
            with contextlib.suppress(PartyFailure):
                wiggled = reference.oracle(values, rng, wiggle=rng)
        try:
            eager = reference.eager(values, rng)
        except PartyFailure as failure:
            if failure.kind == "raised" and not strict:
                reference.rollback()
                raise Skipped("the task does not accept such inputs") from None
            raise
        if oracle is not None and [s.shape for s in oracle.outputs.specs] != [s.shape for s in eager.outputs.specs]:
            oracle = None
        references, alternatives, bounds, errors = [], [], [], []
        for index, (spec, tensor) in enumerate(zip(eager.outputs.specs, eager.outputs.tensors, strict=True)):
            precise = oracle.outputs.tensors[index] if oracle is not None else tensor
            if not strict and spec.floating and not (bool(tensor.isfinite().all()) and bool(precise.isfinite().all())):
                reference.rollback()
                raise Skipped("the task itself does not stay finite")
            error = distance(tensor, precise) if spec.floating else 0.0
            if spec.floating and (error > CHAOTIC or not math.isfinite(error)) and spec.dtype in ("float32", "float64"):
                if not strict:
                    reference.rollback()
                    raise Skipped("fp32 itself is far from fp64 for these inputs")
                precise, error = tensor, 0.0
            wiggle = 0.0
            if wiggled is not None and spec.floating and spec.numel < SMALL and precise is not tensor:
                wiggle = distance(wiggled.outputs.tensors[index], precise)
            references.append(precise)
            alternatives.append(tensor)
            bounds.append(bound(error, wiggle, spec.torch_dtype) if precise is not tensor else NO_ORACLE * epsilon(spec.torch_dtype))
            errors.append(error)
        state_references = oracle.state if oracle is not None and len(oracle.state) == len(eager.state) else eager.state
        state_bounds = [
            bound(distance(a, b), 0.0, a.dtype) if a.is_floating_point() else 0.0 for a, b in zip(eager.state, state_references, strict=True)
        ]
        return Expected(eager.outputs, references, alternatives, bounds, errors, state_references, state_bounds, eager.aliased, eager.changed_inputs)

    def _trial(self, name: str, seed: int, values: Values) -> Trial:
        strict = name not in DISTRIBUTIONS and not name.startswith("random weights")
        rng = self.draws.getrandbits(32)
        try:
            expected = self.expect(values, rng, strict)
        except PartyFailure as failure:
            failure.request = "start"
            failure.message = f"the reference failed: {failure.message}"
            raise
        if name.startswith("task inputs"):
            self.errors = [max(pair) for pair in itertools.zip_longest(self.errors, expected.errors, fillvalue=0.0)]
        assert self.subject is not None and self.subject.caller is not None
        caller = self.subject.caller
        if [spec.nbytes for spec in caller.expected] != [spec.nbytes for spec in expected.outputs.specs]:  # another shape
            caller.expected, caller.previous = expected.outputs.specs, []
        call = caller.call(values, rng, flush=False, fresh_address=self.draws.random() < 0.5, reread=True)
        return self._judged(name, seed, call, expected)

    def _judged(self, name: str, seed: int, call: Call, expected: Expected) -> Trial:
        trial = compare_outputs(name, seed, call, expected.outputs, expected.references, expected.alternatives, expected.bounds)
        if not trial.ok:
            return trial
        trial.norm = NORM
        changed = [index for index, intact in enumerate(call.inputs_intact) if not intact and index not in expected.changed_inputs]
        if changed:
            return trial.model_copy(update={"ok": False, "output": f"input {changed[0]}", "detail": f"the program changes its input {changed[0]}"})
        stale = self._stale(call, expected)
        if stale:
            return trial.model_copy(update={"ok": False, "detail": stale})
        state = self._state_difference(expected)
        if state is not None:
            return trial.model_copy(update=state)
        self._last = (call.outputs, expected.aliased)
        return trial

    _last: tuple[list[torch.Tensor], list[bool]] | None = None

    def _stale(self, call: Call, expected: Expected) -> str:
        """Outputs of the call before must still be what they were, unless the task itself hands out views of its inputs."""
        if call.again is None or self._last is None or len(call.again) != len(self._last[0]):
            return ""
        for index, (now, then) in enumerate(zip(call.again, self._last[0], strict=True)):
            if now.shape == then.shape and not self._last[1][index] and not _equal(now, then):
                return "the outputs of a call change when the program is called again"
        return ""

    def _state_difference(self, expected: Expected) -> dict[str, Any] | None:
        names = self.reference.mutated
        if not names or self.seeded:
            return None
        assert self.subject is not None
        runner = self.subject.runner
        answer = runner.ask("state", {"names": names}, self.limits.call).message
        if answer.get("specs") is None:
            return {"ok": False, "output": names[0], "detail": f"the state dict has no {names[0]!r}, which the task changes"}
        specs = read_specs(answer["specs"])
        for name, spec, tensor in zip(names, specs, expected.state, strict=True):
            if spec.shape != tuple(tensor.shape):
                return {"ok": False, "output": name, "detail": f"{name} has shape {list(spec.shape)} instead of {list(tensor.shape)}"}
        for name, value, tensor, limit in zip(names, fetch(runner, "state", specs, "held"), expected.state, expected.state_bounds, strict=True):
            judgement = judge(value, tensor, limit)
            if not judgement.ok:
                return {"ok": False, "output": name, "error": _finite(judgement.error), "bound": limit, "detail": f"{name}: {judgement.detail}"}
        return None

    # After the trials

    def observe(self) -> Observation:
        assert self.subject is not None
        runner = self.subject.runner
        message = {"tree": self.first_inputs.tree, "rng": 1, **give(runner, "in", self.first_inputs.tensors, self.first_inputs.specs)}
        answer = runner.ask("observe", message, self.limits.call * 3).message
        try:
            kernels = [Kernel.model_validate(kernel) for kernel in answer.get("kernels", [])][:64]
            share = answer.get("own_share")
            return Observation(
                kernels, float(share) if share is not None else None, str(answer.get("reason", "")), int(answer.get("threads_left", 0))
            )
        except (TypeError, ValueError):
            return Observation(reason="the runner's observation is malformed")

    def peak_bytes(self) -> int | None:
        assert self.subject is not None
        group = self.subject.runner.spawned.group
        if self.reference.pool.device.kind == "cpu":
            measured = group.peak_bytes() if group is not None else None
            if measured is not None:
                return measured
        value = self.subject.runner.ask("peak", {}, self.limits.call).message.get("bytes")
        return value if isinstance(value, int) else None

    def bytes_moved(self) -> int:
        """Inputs and weights read once, outputs written once."""
        state = sum(entry.spec.nbytes for entry in self.reference.state if entry.alias is None)
        return state + self.first_inputs.nbytes + place(self.expected_specs)[1]


def compare_outputs(
    name: str,
    seed: int,
    call: Call,
    form: Values,
    references: list[torch.Tensor],
    alternatives: list[torch.Tensor],
    bounds: list[float],
) -> Trial:
    """The worst output of a call. Shapes, dtypes and structure first; a list and a tuple of outputs count as the same structure."""
    names = leaf_names(form.tree)
    if describe(call.tree) != describe(form.tree):
        return Trial(name=name, seed=seed, ok=False, detail=f"the output is {describe(call.tree)[:200]} instead of {describe(form.tree)[:200]}")
    for leaf, got, want in zip(names, call.specs, form.specs, strict=False):
        difference = same_form(got, want, leaf)
        if difference:
            return Trial(name=name, seed=seed, ok=False, output=leaf, detail=difference)
    if len(call.outputs) != len(references):
        return Trial(name=name, seed=seed, ok=False, detail="the outputs were not delivered")
    worst = Trial(name=name, seed=seed, ok=True, error=0.0, bound=0.0, norm=NORM)
    margin = -1.0
    for leaf, value, reference, alternative, limit in zip(names, call.outputs, references, alternatives, bounds, strict=True):
        judgement: Judgement = judge(value, reference, limit)
        if not judgement.ok and not value.is_floating_point():
            judgement = judge(value, alternative, limit)  # a tie that fp64 breaks otherwise than eager
        if not judgement.ok:
            return Trial(
                name=name,
                seed=seed,
                ok=False,
                output=leaf,
                error=_finite(judgement.error),
                bound=limit,
                norm=NORM,
                detail=f"{leaf}: {judgement.detail}",
            )
        if judgement.error is not None and judgement.error / (limit or 1.0) > margin:
            margin = judgement.error / (limit or 1.0)
            worst = worst.model_copy(update={"output": leaf, "error": judgement.error, "bound": judgement.bound})
    return worst


def is_trivial(inputs: Values, outputs: Values, other_inputs: Values, other_outputs: Values) -> bool:
    """Whether a constant, the first call's outputs, an echo of an input, or its mean would pass for every output."""

    def would_pass(guess: torch.Tensor, output: torch.Tensor) -> bool:
        return guess.shape == output.shape and output.is_floating_point() and distance(guess, output) < 1e-4

    for one, two in zip(outputs.tensors, other_outputs.tensors, strict=True):
        if not one.numel():
            continue
        if not one.is_floating_point():
            if not torch.equal(one, two):
                return False
            continue
        floats = [tensor for tensor in other_inputs.tensors if tensor.is_floating_point()]
        guesses = [torch.full_like(two, float(one.double().mean())), one, torch.zeros_like(two), *floats]
        guesses += [tensor.double().mean(dim=-1) for tensor in floats if tensor.dim()]
        spread = float(two.double().std()) if two.numel() > 1 else abs(float(two.double().mean() - one.double().mean()))
        tiny = spread < 1e-7 * max(float(two.double().abs().max()), 1e-30)
        if not tiny and not any(would_pass(guess, two) for guess in guesses):
            return False
    return bool(outputs.tensors)


def _equal(left: torch.Tensor, right: torch.Tensor) -> bool:
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    if torch.equal(left, right):
        return True
    return left.is_floating_point() and bool(((left == right) | (left.isnan() & right.isnan())).all())


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _first_lines(text: str) -> str:
    return " ".join(line.strip() for line in text.splitlines())[:400]
