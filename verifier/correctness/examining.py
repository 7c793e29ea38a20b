"""One call of the program held against what it must give: outputs, inputs, memory, the outputs of the call before, and the state."""

from __future__ import annotations

from typing import Any

import torch

from verifier.correctness.batches import judgements
from verifier.correctness.bounds import NORM, same_values
from verifier.correctness.comparison import compare_outputs, finite
from verifier.correctness.expectation import Expected
from verifier.correctness.fingerprint import Fingerprint
from verifier.judge.asking import Party
from verifier.judge.session import ReferenceSession, fetch
from verifier.layout import leaf_names, read_specs
from verifier.report import Trial
from verifier.timing.blocks import Call, kept


class Examiner:
    """Knows the outputs of the call before, which the next one must not have changed."""

    def __init__(self, reference: ReferenceSession):
        self.reference = reference
        self.last: tuple[list[torch.Tensor | Fingerprint], list[bool]] | None = None

    def accept(self, call: Call, expected: Expected) -> None:
        """The call was right: the next one is held to its outputs."""
        self.last = ([kept(output) for output in call.outputs], expected.run.aliased)

    def examine(self, name: str, seed: int, call: Call, expected: Expected, runner: Party, state: list[str]) -> Trial:
        """`state`: what the program calls the entries that the task changes."""
        trial = compared(name, seed, call, expected)
        if not trial.ok:
            return trial
        trial.norm = NORM
        changed = [index for index, intact in enumerate(call.inputs_intact) if not intact and index not in expected.run.changed_inputs]
        if changed:
            return trial.model_copy(update={"ok": False, "output": f"input {changed[0]}", "detail": f"the program changes its input {changed[0]}"})
        detail = shared(call, expected) or self._stale(call)
        if detail:
            return trial.model_copy(update={"ok": False, "detail": detail})
        off = self._state(expected, runner, state) if self.reference.mutated else None
        return trial if off is None else trial.model_copy(update=off)

    def _stale(self, call: Call) -> str:
        """Outputs of the call before must still be what they were, unless the task itself hands out views of its inputs."""
        if call.again is None or self.last is None or len(call.again) != len(self.last[0]):
            return ""
        for index, (now, then) in enumerate(zip(call.again, self.last[0], strict=True)):
            if now.shape == then.shape and not self.last[1][index] and not equal(now, then):
                return "the outputs of a call change when the program is called again"
        return ""

    def _state(self, expected: Expected, runner: Party, theirs: list[str]) -> dict[str, Any] | None:
        """Null, or what is off, as the fields of a `Trial`. `theirs`: the program's names."""
        names = self.reference.mutated
        answer = runner.ask("state", {"names": theirs}, self.reference.limits.call).message
        if answer.get("specs") is None:
            return {"ok": False, "output": names[0], "detail": f"the state dict has no {names[0]!r}, which the task changes"}
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


def compared(name: str, seed: int, call: Call, expected: Expected) -> Trial:
    leaves = expected.leaves
    references, alternatives = [leaf.reference for leaf in leaves], [leaf.alternative for leaf in leaves]
    limits, shares = [leaf.limit for leaf in leaves], [leaf.tolerated for leaf in leaves]
    return compare_outputs(name, seed, call, expected.outputs, references, alternatives, limits, shares)


def shared(call: Call, expected: Expected) -> str:
    """Outputs that are memory of an input or of what the model keeps, where the task's are not: the next call would overwrite them."""
    names = leaf_names(expected.outputs.tree)
    for name, of, allowed in zip(names, call.shared, expected.run.aliased, strict=False):
        if of and not allowed:
            return f"{name} shares its memory with {of}"
    return ""


def equal(left: torch.Tensor | Fingerprint, right: torch.Tensor | Fingerprint) -> bool:
    """NaN equals NaN."""
    if isinstance(left, Fingerprint) or isinstance(right, Fingerprint):
        return left == right
    return left.dtype == right.dtype and same_values(left, right)
