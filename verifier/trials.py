"""Correctness: several calls of the program in its runner, each judged against the reference's fp64 result for the same secret inputs."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from verifier.comparison import compare_outputs, finite
from verifier.correctness import DISTRIBUTIONS, NORM, judge, randomise_state
from verifier.expectation import Expectations, Expected, Skipped, first_lines
from verifier.fingerprint import Fingerprint
from verifier.layout import leaf_names, place, read_specs
from verifier.pool import Party, PartyFailure
from verifier.report import Finding, Trial
from verifier.session import ReferenceSession, Values, fetch, give
from verifier.task import Flag
from verifier.timing import Call, Caller, kept
from verifier.triviality import trivial_guess

LEAST_TRIALS = 8  # however slow they are


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
class Step:
    """One planned call. `fresh`: at another address than the call before; without it, new contents lie where old ones lay."""

    name: str
    seed: int
    values: Values
    weights: list[torch.Tensor] | None = None
    fresh: bool = True
    known: Expected | None = None


class Trials:
    def __init__(self, reference: ReferenceSession, seed: int, full: bool, on_progress: Callable[[str], None], backward: bool = False):
        self.reference = reference
        self.limits = reference.limits
        self.seed = seed
        self.full = full
        self.backward = backward
        self.lock = threading.Lock()  # baselines come up side by side, the reference is one
        self.on_progress = on_progress
        self.draws = random.Random(seed)  # a seed's every use is a number of its own, in a fixed order
        self.weight_seed = self.draws.getrandbits(32)
        self.done: list[Trial] = []
        self.subject: Subject | None = None
        self.stochastic = False
        self.flags: list[Flag] = []
        self.expectations = Expectations(reference, self.draws)
        self.original: list[torch.Tensor] = []
        self.seeded = False

    def prepare(self) -> None:
        """Loads the task under the evaluation's seed and learns whether it is stochastic. Raises `PartyFailure` for the task's faults."""
        self.reference.load(self.weight_seed)
        self.original = self.reference.state_tensors
        self.first_inputs = self.reference.inputs(self.draws.getrandbits(32), count=True)
        if self.backward:
            self.first_inputs = self.reference.want_gradients(self.first_inputs, self.draws.getrandbits(32))
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
        if trivial_guess(self.first_inputs, one.outputs, other, three.outputs):
            self.flags.append("trivial")

    # The program's side

    def run(self, subject: Subject) -> Verdict:
        """All trials; the first that is wrong ends them. Raises `PartyFailure` for the program's crashes, `LayoutError` for unusable answers."""
        verdict = Verdict(flags=list(self.flags))
        self.done = []
        self.reference.take_state(self.original)
        refused = self._construct(subject, self.original)
        self.seeded = False
        if refused and self.reference.state:
            self._without_weights()
            verdict.weights = "seeded"
            message = f"the task's state dict does not load strictly, so both sides were constructed under one seed: {first_lines(refused)}"
            verdict.findings.append(Finding(rule="weights", severity="note", message=message, source="runtime"))
            self._construct(subject, self.original)
        begin = time.monotonic()
        for number, step in enumerate(self._plan()):
            if number >= LEAST_TRIALS and time.monotonic() - begin > self.limits.correctness:
                break
            if step.weights is not None and self.seeded:
                continue
            trial = self._one(step, subject)
            if trial is None:
                continue
            if self.backward:
                trial.name = f"grad {trial.name}"
            self.done.append(trial)
            if trial.ok:
                continue
            if step.weights is None or not all(earlier.ok for earlier in self.done[:-1]):
                verdict.wrong = f"{step.name}: {trial.detail}"
                break
            assumed = self._assumed(step, subject)
            if assumed:
                verdict.wrong = f"{step.name}: {trial.detail} ({assumed})"
                break
            # Right as constructed, wrong once other weights are loaded: what it computes from them, it computes in its constructor.
            self.done.pop()
            self._without_weights()
            self._construct(subject, self.original)
            verdict.weights = "seeded"
            message = f"results are right only with the weights that the constructor makes; after another state dict is loaded: {trial.detail}"
            verdict.findings.append(Finding(rule="weights", severity="downgrade", message=message, source="runtime"))
        verdict.flags = [*self.flags, *(["trivial"] if self.expectations.noise and "trivial" not in self.flags else [])]
        return verdict

    def _one(self, step: Step, subject: Subject) -> Trial | None:
        """Null where the task does not bear such inputs."""
        if step.weights is not None:
            self.reference.take_state(step.weights)
            self._construct(subject, step.weights)
        try:
            trial = self._trial(step)
            self.on_progress(f"{step.name}: {'ok' if trial.ok else trial.detail}")
        except Skipped as reason:
            self.on_progress(f"{step.name}: skipped, {reason}")
            trial = None
        if step.weights is not None:
            self.reference.take_state(self.original)
            self._construct(subject, self.original)
        return trial

    def _assumed(self, step: Step, subject: Subject) -> str:
        """Why a program that fails with other weights is wrong, rather than one that transforms its weights in the constructor: that one fails with
        whatever is loaded, whereas one that takes a zero bias or a scale of one for granted is right while these stay."""
        fixed = [index for index, tensor in enumerate(self.original) if _constant(tensor)]
        loose = [i for i, entry in enumerate(self.reference.state) if entry.parameter and entry.spec.floating and i not in fixed]
        names = ", ".join(self.reference.state[index].name for index in fixed[:4])
        if not fixed:
            return ""
        if not loose:
            return f"it takes the values for granted that the constructor gives to {names}"
        assert step.weights is not None
        kept = [own if index in fixed else other for index, (own, other) in enumerate(zip(self.original, step.weights, strict=True))]
        trial = self._one(Step(step.name, step.seed, step.values, kept), subject)
        return f"it takes the values for granted that the constructor gives to {names}" if trial is not None and trial.ok else ""

    def reconstruct(self, subject: Subject, stay: bool = True) -> None:
        """The program in another runner, as it was when the trials ended; with `stay`, later questions go to that runner."""
        if stay:
            self._last = None
            self.reference.take_state(self.original)
        self._construct(subject, self.original, stay)

    def _without_weights(self) -> None:
        """From now on both sides have the weights that their constructors make under one seed. Names then mean nothing, so that only the gradients
        of inputs are compared."""
        self.seeded = True
        wanted = self.reference.backward
        if wanted is None:
            return
        self.reference.backward = {**wanted, "sources": [name for name in wanted["sources"] if name.startswith("input ")]}
        run = self.reference.eager(self.first_inputs, 1)
        self.reference.rollback()
        self.expected_specs, self.tree = run.outputs.specs, run.outputs.tree
        self.expectations = Expectations(self.reference, self.draws)

    def _construct(self, subject: Subject, state: list[torch.Tensor], stay: bool = True) -> str:
        """A fresh `ModelNew`; returns why the state dict was refused, or nothing."""
        if stay:
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
        subject.caller = Caller(runner, self.expected_specs, self.limits.call, backward=reference.backward)
        return answer.text("refused")

    def _plan(self) -> Iterator[Step]:
        """Cheap and telling trials first; inputs are drawn as they are needed."""
        reference = self.reference
        weighted = any(entry.spec.floating for entry in reference.state)

        def fresh() -> tuple[int, Values]:
            seed = self.draws.getrandbits(32)
            return seed, reference.inputs(seed)

        yield Step("task inputs 1", self.draws.getrandbits(32), self.first_inputs)
        yield Step("task inputs 2", *fresh(), fresh=False)
        if not reference.mutated and self.expectations.first is not None:
            yield Step("the first inputs elsewhere", self.draws.getrandbits(32), self.first_inputs, known=self.expectations.first)
            changed = one_element(self.first_inputs, seed := self.draws.getrandbits(32))
            if changed is not None:
                yield Step("one element changed", seed, changed, fresh=False)
        if weighted:
            seed, values = fresh()
            yield Step("random weights", seed, values, self._other_weights(seed))
        for variant in range(reference.variants):
            seed = self.draws.getrandbits(32)
            yield Step(f"input variant {variant + 1}", seed, reference.inputs(seed, variant))
        for distribution in DISTRIBUTIONS:
            seed, values = fresh()
            reshaped = reference.reshaped(values, distribution, seed)
            if reshaped is not None:
                yield Step(distribution, seed, reshaped, fresh=self.draws.random() < 0.5)
        if self.full:
            for count in range(3, 6):
                yield Step(f"task inputs {count}", *fresh(), fresh=self.draws.random() < 0.5)
            if weighted:
                seed, values = fresh()
                reshaped = reference.reshaped(values, "heavy-tailed", seed)
                yield Step("random weights 2", seed, reshaped or values, self._other_weights(seed))

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

    def _trial(self, step: Step) -> Trial:
        strict = step.weights is None and step.name not in DISTRIBUTIONS
        rng = step.known.rng if step.known is not None else self.draws.getrandbits(32)
        try:
            expected = step.known or self.expectations.expect(step.values, rng, strict)
        except PartyFailure as failure:
            failure.request = "start"
            failure.message = f"the reference failed: {failure.message}"
            raise
        if step.name.startswith("task inputs"):
            self.expectations.remember(expected)
        assert self.subject is not None and self.subject.caller is not None
        caller = self.subject.caller
        if [spec.nbytes for spec in caller.expected] != [spec.nbytes for spec in expected.outputs.specs]:  # another shape
            caller.expected, caller.previous = expected.outputs.specs, []
        try:
            call = caller.call(step.values, rng, flush=False, fresh_address=step.fresh, reread=True)
        except PartyFailure as failure:
            if failure.error_class != "NoGradient":
                raise
            return Trial(name=step.name, seed=step.seed, ok=False, detail=failure.message)
        trial = self._judged(step.name, step.seed, call, expected)
        if not trial.ok and trial.bound is not None and expected.in_reach(trial.error):
            self.expectations.appeal(expected)
            if step.name.startswith("task inputs"):
                self.expectations.remember(expected)
            trial = self._judged(step.name, step.seed, call, expected)
        if trial.ok:
            self._last = ([kept(output) for output in call.outputs], expected.run.aliased)
        return trial

    def _judged(self, name: str, seed: int, call: Call, expected: Expected) -> Trial:
        trial = self._compared(name, seed, call, expected)
        if not trial.ok:
            return trial
        trial.norm = NORM
        changed = [index for index, intact in enumerate(call.inputs_intact) if not intact and index not in expected.run.changed_inputs]
        if changed:
            return trial.model_copy(update={"ok": False, "output": f"input {changed[0]}", "detail": f"the program changes its input {changed[0]}"})
        shared = self._shared(call, expected)
        if shared:
            return trial.model_copy(update={"ok": False, "detail": shared})
        stale = self._stale(call, expected)
        if stale:
            return trial.model_copy(update={"ok": False, "detail": stale})
        state = self._state_difference(expected)
        if state is not None:
            return trial.model_copy(update=state)
        return trial

    def _compared(self, name: str, seed: int, call: Call, expected: Expected) -> Trial:
        leaves = expected.leaves
        references, alternatives = [leaf.reference for leaf in leaves], [leaf.alternative for leaf in leaves]
        limits, shares = [leaf.limit for leaf in leaves], [leaf.tolerated for leaf in leaves]
        return compare_outputs(name, seed, call, expected.outputs, references, alternatives, limits, shares)

    def _shared(self, call: Call, expected: Expected) -> str:
        """Outputs that are memory of an input or of what the model keeps, where the task's are not: the next call would overwrite them."""
        names = leaf_names(expected.outputs.tree)
        for name, of, allowed in zip(names, call.shared, expected.run.aliased, strict=False):
            if of and not allowed:
                return f"{name} shares its memory with {of}"
        return ""

    _last: tuple[list[torch.Tensor | Fingerprint], list[bool]] | None = None

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
        for name, spec, leaf in zip(names, specs, expected.state, strict=True):
            if spec.shape != tuple(leaf.reference.shape):
                return {"ok": False, "output": name, "detail": f"{name} has shape {list(spec.shape)} instead of {list(leaf.reference.shape)}"}
        for name, value, leaf in zip(names, fetch(runner, "state", specs, "held"), expected.state, strict=True):
            judgement = judge(value, leaf.reference, leaf.limit, leaf.tolerated)
            if not judgement.ok:
                return {"ok": False, "output": name, "error": finite(judgement.error), "bound": leaf.limit, "detail": f"{name}: {judgement.detail}"}
        return None

    # After the trials

    def baseline_off(self, caller: Caller) -> str:
        """Empty, or how a baseline's output for the first inputs, with the weights of the constructor, is off: then it is no baseline."""
        values, rng = self.expectations.first_call or (self.first_inputs, 1)
        call = caller.call(values, rng, flush=False)
        if self.stochastic or self.expectations.first_call is None:
            return ""  # a compiler may draw other numbers
        with self.lock:
            expected = self.expectations.recall()
            assert expected is not None
            trial = self._compared("baseline", 0, call, expected)
            if not trial.ok and trial.bound is not None and expected.in_reach(trial.error):
                self.expectations.appeal(expected)
                trial = self._compared("baseline", 0, call, expected)
        return "" if trial.ok else trial.detail

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


def one_element(values: Values, seed: int) -> Values | None:
    """The same inputs but for one element, far from the beginning of its tensor, which takes another element's value."""
    draws = random.Random(seed)
    candidates = [index for index, tensor in enumerate(values.tensors) if tensor.numel() > 1]
    floating = [index for index in candidates if values.tensors[index].is_floating_point()]
    if not candidates:
        return None
    chosen = max(floating or candidates, key=lambda index: values.tensors[index].numel())
    tensors = list(values.tensors)
    changed = tensors[chosen].clone(memory_format=torch.preserve_format)
    flat = changed.reshape(-1) if changed.is_contiguous() else changed.permute(_by_stride(changed)).reshape(-1)
    at = draws.randrange(flat.numel() // 2, flat.numel())
    if changed.is_floating_point():
        low, high = flat.min(), flat.max()
        flat[at] = torch.where(flat[at] - low > high - flat[at], low, high)
    else:
        other = torch.nonzero(flat != flat[at])
        if not other.numel():
            return None
        flat[at] = flat[other[draws.randrange(len(other))]].reshape(())
    tensors[chosen] = changed
    return Values(values.tree, values.specs, tensors)


def _by_stride(tensor: torch.Tensor) -> list[int]:
    return sorted(range(tensor.dim()), key=lambda d: -tensor.stride(d))


def _constant(tensor: torch.Tensor) -> bool:
    """A floating tensor whose elements are all the same: zeros, ones."""
    return tensor.is_floating_point() and tensor.numel() > 0 and bool((tensor == tensor.flatten()[0]).all())


def _equal(left: torch.Tensor | Fingerprint, right: torch.Tensor | Fingerprint) -> bool:
    if isinstance(left, Fingerprint) or isinstance(right, Fingerprint):
        return left == right
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    if torch.equal(left, right):
        return True
    return left.is_floating_point() and bool(((left == right) | (left.isnan() & right.isnan())).all())
