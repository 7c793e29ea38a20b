"""Checks one call of the program: its outputs, its inputs, its memory, the previous call's outputs, and the state."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import torch

from verifier.correctness.batches import judgements
from verifier.correctness.bounds import NORM, judge, no_oracle, same_values
from verifier.correctness.comparison import compare_outputs, finite, wrong_outputs
from verifier.correctness.expectation import Expected
from verifier.correctness.fingerprint import Fingerprint, fingerprint
from verifier.correctness.wrong_parts import wrong_part
from verifier.float8 import continuous
from verifier.judge.asking import Party
from verifier.judge.party_failure import PartyFailure
from verifier.judge.session import ReferenceSession, fetch
from verifier.layout import Spec, leaf_names, read_specs
from verifier.parties.owning import EARLIER, HELD_BYTES, HELD_CALLS, ITSELF
from verifier.report import MOST_WRONG, Trial, WrongTensor
from verifier.task import Precision
from verifier.timing.blocks import Caller, kept
from verifier.timing.call import Call

OVERWRITTEN = "the outputs of a call change when the program is called again"
Compared = tuple[list[str], list[torch.Tensor], list[torch.Tensor], list[torch.Tensor], list[float], list[float]]
CLONE = "hand out a `clone()` of a buffer that the program keeps"


@dataclass
class Made:
    """A call whose outputs the runner still holds."""

    specs: list[Spec]
    prints: list[Fingerprint]
    aliased: list[str]


class Examiner:
    """Remembers the outputs of the previous call, which the next call must not change."""

    def __init__(self, reference: ReferenceSession):
        self.reference = reference
        self.last: tuple[list[torch.Tensor | Fingerprint], list[str]] | None = None
        self.calls: list[Made] = []  # the calls made on the current object

    def accept(self, call: Call, expected: Expected) -> None:
        """Accepts a call as correct. The next call must not change its outputs."""
        self.last = ([kept(output) for output in call.outputs], expected.run.aliased)

    def pass_over(self) -> None:
        """Skips a call. The next call may change its outputs. Any outputs that the runner holds are still checked at the end."""
        self.last = None

    def begin(self) -> None:
        """Starts with a new object of the program and forgets the outputs of the previous object."""
        self.last, self.calls = None, []

    def note(self, call: Call, aliased: list[str]) -> None:
        """Records a call whose outputs the runner holds."""
        self.calls.append(Made(call.specs, [fingerprint(output) for output in call.outputs], aliased))

    def overwritten(self, caller: Caller) -> str:
        """Reports which of the outputs that the runner still holds have changed. Returns an empty string if none has. The runner holds as many of the
        most recent calls as fit in memory."""
        room = HELD_BYTES
        for number in reversed(range(len(self.calls))):
            made = self.calls[number]
            room -= sum(spec.nbytes for spec in made.specs)
            if room < 0 or len(self.calls) - number > HELD_CALLS:
                break
            now = caller.held(number, made.specs)
            if now is None:
                return "the outputs of an earlier call can no longer be checked"
            for tensor, then, of in zip(now, made.prints, made.aliased, strict=False):
                if fingerprint(tensor) != then and not borrowed(of):
                    later = len(self.calls) - 1 - number
                    return f"{OVERWRITTEN} (found {later} call{'s' if later > 1 else ''} later): {CLONE}"
        return ""

    def examine(self, name: str, seed: int, call: Call, expected: Expected, runner: Party, state: list[str]) -> Trial:
        """Checks a call. `state` contains the program's names for the entries that the task changes. If a value is wrong, every wrong tensor is
        described, because one defect may reach several and a repair depends on which."""
        trial = self._examined(name, seed, call, expected, runner, state)
        if not trial.ok and len(call.outputs) == len(expected.leaves):
            outputs = trial.wrong or wrong_outputs(*leaves_of(call, expected))
            states = self._wrong_state(expected, runner, state) if self.reference.mutated else []
            wrong = [*outputs, *wrong_inputs(call, expected), *states]
            if wrong:
                trial.compared = len(expected.leaves) + len(expected.run.after) + len(expected.state if self.reference.mutated else ())
                trial.wrong = wrong[:MOST_WRONG]
        return trial

    def _examined(self, name: str, seed: int, call: Call, expected: Expected, runner: Party, state: list[str]) -> Trial:
        trial = compared(name, seed, call, expected, self.reference.precision)
        if not trial.ok:
            return trial
        trial.norm = NORM
        changed = [index for index, intact in enumerate(call.inputs_intact) if not intact and index not in expected.run.changed_inputs]
        if changed:
            return trial.model_copy(update={"ok": False, "output": f"input {changed[0]}", "detail": f"the program changes its input {changed[0]}"})
        detail = changes_off(call, expected) or shared(call, expected) or self._stale(call)
        if detail:
            return trial.model_copy(update={"ok": False, "detail": detail})
        off = self._state(expected, runner, state) if self.reference.mutated else None
        return trial if off is None else trial.model_copy(update=off)

    def _stale(self, call: Call) -> str:
        """Checks that the previous call's outputs are unchanged, unless the task itself returns views of its inputs."""
        if call.again is None or self.last is None or len(call.again) != len(self.last[0]):
            return ""
        for index, (now, then) in enumerate(zip(call.again, self.last[0], strict=True)):
            if now.shape == then.shape and not borrowed(self.last[1][index]) and not equal(now, then):
                return f"{OVERWRITTEN}: {CLONE}"
        return ""

    def _state(self, expected: Expected, runner: Party, theirs: list[str]) -> dict[str, Any] | None:
        """Returns incorrect state as fields of a `Trial`, or null if the state is correct. `theirs` holds the program's names."""
        names = self.reference.mutated
        answer = runner.ask("state", {"names": theirs}, self.reference.limits.call).message
        if answer.get("specs") is None:
            missing = ours(answer.get("missing"), names, theirs)
            return {"ok": False, "output": missing, "detail": f"the program has no parameter or buffer {missing!r}, which the task changes"}
        specs = read_specs(answer["specs"])
        for name, spec, leaf in zip(names, specs, expected.state, strict=True):
            if spec.shape != tuple(leaf.reference.shape):
                return {"ok": False, "output": name, "detail": f"{name} has shape {list(spec.shape)} instead of {list(leaf.reference.shape)}"}
        leaves = expected.state
        references, limits, shares = [leaf.reference for leaf in leaves], [leaf.limit for leaf in leaves], [leaf.tolerated for leaf in leaves]
        found = judgements(fetch(runner, "state", specs, "held"), references, limits, shares)
        for name, judgement, leaf in zip(names, found, leaves, strict=True):
            if not judgement.ok:
                return {"ok": False, "output": name, "error": finite(judgement.error), "bound": leaf.limit, "detail": f"{name}: {judgement.detail}"}
        return None

    def _wrong_state(self, expected: Expected, runner: Party, theirs: list[str]) -> list[WrongTensor]:
        """Describes every state entry that is off after a wrong call. The result is empty if the program lacks one or no longer answers, because what
        is known to be wrong suffices for the verdict."""
        with contextlib.suppress(PartyFailure):
            answer = runner.ask("state", {"names": theirs}, self.reference.limits.call).message
            if answer.get("specs") is not None:
                values = fetch(runner, "state", read_specs(answer["specs"]), "held")
                entries = zip(self.reference.mutated, values, expected.state, strict=True)
                parts = [wrong_part(name, value, leaf.reference, leaf.limit, leaf.tolerated) for name, value, leaf in entries]
                return [part for part in parts if part is not None]
        return []


def leaves_of(call: Call, expected: Expected) -> Compared:
    """Returns the outputs' names, values, fp64 references, eager's values where order is open, bounds and tolerated shares."""
    leaves = expected.leaves
    references, alternatives = [leaf.reference for leaf in leaves], [leaf.alternative for leaf in leaves]
    limits, shares = [leaf.limit for leaf in leaves], [leaf.tolerated for leaf in leaves]
    return leaf_names(expected.outputs.tree), call.outputs, references, alternatives, limits, shares


def ours(missing: object, names: list[str], theirs: list[str]) -> str:
    """Returns the task's name for an entry that the program lacks under its own name."""
    return names[theirs.index(missing)] if missing in theirs else names[0]


def compared(name: str, seed: int, call: Call, expected: Expected, precision: Precision) -> Trial:
    _, _, references, alternatives, limits, shares = leaves_of(call, expected)
    leaves = expected.leaves
    trial = compare_outputs(name, seed, call, expected.outputs, references, alternatives, limits, shares)
    errors = {output: leaf.error for output, leaf in zip(leaf_names(expected.outputs.tree), leaves, strict=False) if leaf.precise}
    trial.eager_error = finite(errors.get(trial.output))
    if not trial.ok:
        return trial
    for output, leaf, value in zip(leaf_names(expected.outputs.tree), leaves, call.outputs, strict=False):
        said = leaf.finer(value, precision)
        if said:
            return trial.model_copy(update={"ok": False, "output": output, "detail": f"{output}: {said}"})
    return trial


def changes_off(call: Call, expected: Expected) -> str:
    """Describes how an input that the task changes (a cache that the caller owns) differs from eager's version of it. Returns an empty string if none
    does. Such inputs have no separate fp64 value, so the bound is that of a comparison with eager, or that of the outputs if it is wider."""
    after, limits, share = writes(call, expected)
    return writes_off(after, expected.run.after, limits, share)


def writes(call: Call, expected: Expected) -> tuple[dict[int, torch.Tensor], list[float], float]:
    """Returns the inputs that the task changes as the program left them, the bounds of floating-point outputs, and the tolerated share."""
    limits = [leaf.limit + leaf.error for leaf in expected.leaves if leaf.floating]
    share = max((leaf.tolerated for leaf in expected.leaves), default=0.0)
    return {index: call.after.get(index, expected.values.tensors[index]) for index in expected.run.after}, limits, share


def wrong_inputs(call: Call, expected: Expected) -> list[WrongTensor]:
    """Describes every input that the task changes and that is off after the call."""
    after, limits, share = writes(call, expected)
    parts = [wrong_part(f"input {index}", after[index], wanted, write_limit(wanted, limits), share) for index, wanted in expected.run.after.items()]
    return [part for part in parts if part is not None]


def write_limit(expected: torch.Tensor, limits: list[float]) -> float:
    return max([no_oracle(expected.dtype), *limits]) if continuous(expected) else 0.0


def writes_off(after: dict[int, torch.Tensor], wanted: dict[int, torch.Tensor], limits: list[float], share: float) -> str:
    """Compares inputs after a call with eager's versions (`wanted`). Both are indexed by input number. `limits` holds the bounds of floating-point
    outputs."""
    for index, expected in wanted.items():
        judgement = judge(after[index], expected, write_limit(expected, limits), share)
        if not judgement.ok:
            return f"input {index}, which the task changes, is not changed in the same way: {judgement.detail}"
    return ""


def shared(call: Call, expected: Expected) -> str:
    """Finds outputs that share memory with something else although the task's outputs do not. A later write would overwrite them."""
    return shared_off(leaf_names(expected.outputs.tree), call.shared, expected.run.aliased)


def shared_off(names: list[str], ours: list[str], theirs: list[str]) -> str:
    """Compares the owners of the memory that a program's outputs and the task's outputs share."""
    for name, words, allowed in zip(names, ours, theirs, strict=False):
        for of in filter(None, words.split("|")):
            if _kind(of) in {_kind(word) for word in allowed.split("|")} or (of == EARLIER and borrowed(allowed)):
                continue
            if of == ITSELF:
                return f"elements of {name} share memory (overlapping or zero strides), the task's do not: make it `contiguous()`"
            if of == EARLIER:
                return f"{OVERWRITTEN} ({name} shares its memory with the output of an earlier one): {CLONE}"
            other = names[int(of.split()[1])] if _kind(of) == "output" and int(of.split()[1]) < len(names) else of
            return f"{name} shares its memory with {other}"
    return ""


def _kind(of: str) -> str:
    """Returns the kind of an owner named by `verifier.parties.owning.owners`. All state names are of one kind."""
    if of in ("", ITSELF, EARLIER):
        return of
    word, _, number = of.partition(" ")
    return word if word in ("input", "output") and number.isdigit() else "state"


def borrowed(words: str) -> bool:
    """Returns whether the task itself returns memory that later calls can write to."""
    return any(_kind(of) in ("input", "state") for of in words.split("|"))


def equal(left: torch.Tensor | Fingerprint, right: torch.Tensor | Fingerprint) -> bool:
    """Compares tensors, treating NaN as equal to NaN."""
    if isinstance(left, Fingerprint) or isinstance(right, Fingerprint):
        return left == right
    return left.dtype == right.dtype and same_values(left, right)
