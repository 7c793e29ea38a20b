"""The expected result of one call of the task: the reference's fp64 result with a bound for each output, and eager's own result."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from verifier.correctness import spread
from verifier.correctness.batches import deviations
from verifier.correctness.bounds import DRAWS, FLIPPED, SMALL, SMALL_DRAWS, all_finite, bound, chaotic_error, differing, no_oracle, tolerated
from verifier.correctness.decisions import TIE, TIE_DRAWS, TIMES, Decisions, measured, off, told_apart
from verifier.correctness.leaf import Leaf
from verifier.correctness.noise import Inherited, allowance
from verifier.correctness.wrong_parts import off_mask
from verifier.float8 import TYPES, continuous, wide
from verifier.judge.memory import large
from verifier.judge.party_failure import PartyFailure
from verifier.judge.session import ReferenceSession, Run, Values

REACH = 0.5  # larger errors are wrong, whatever the bound
SHORT = "OutOfMemoryError"  # a device failure, unrelated to the task's inputs


@dataclass
class Expected:
    """The expected result of one call of the task, together with the data needed to measure plain arithmetic for that call."""

    run: Run
    leaves: list[Leaf]
    state: list[Leaf]
    values: Values
    rng: int
    oracle: Run | None
    before: list[torch.Tensor] | None = None  # the session's `exact` before the call
    appealed: bool = False

    @property
    def outputs(self) -> Values:
        return self.run.outputs

    def in_reach(self, error: float | None, outputs: Sequence[torch.Tensor] = ()) -> bool:
        """Returns whether plain arithmetic could explain an error of this size in a program's `outputs`. A null error means an error in non-floating
        elements. If fp64 yields only zeros, a relative error is meaningless. A few elements may be off by any amount if they follow from a choice."""
        noisy = any(not leaf.precise for leaf in [*self.leaves, *self.state])
        if error is None or error < REACH or noisy or any(_vanishes(leaf.reference) for leaf in self.state):
            return True
        return any(_perhaps_tied(leaf, value) is not None for leaf, value in zip(self.leaves, outputs, strict=False))


class Skipped(Exception):
    """Raised for a distribution on which the task itself fails. `anew` means that another process has taken over, with the state in its constructed
    form."""

    def __init__(self, reason: str, anew: bool = False):
        super().__init__(reason)
        self.anew = anew


class Expectations:
    """Runs the reference and keeps the data needed to judge later calls."""

    def __init__(self, reference: ReferenceSession, draws: random.Random, first_inputs: Callable[[], Values] | None = None):
        self.reference = reference
        self.draws = draws
        self.first_inputs = first_inputs  # inputs of the first trial; they may have to be drawn again
        self.first: Expected | None = None  # expectation of the first trial; it is recomputed, not kept, if it takes up gigabytes
        self.first_rng: int | None = None  # seed of the first trial's generators
        self.timed_appeal = False
        self.bounds: list[float] = []  # per output: bounds (maxima over trials with the task's inputs), PyTorch's own errors, tolerated shares
        self.errors: list[float] = []
        self.shares: list[float] = []
        self.quantiles: list[tuple[float, ...] | None] = []  # quantiles of errors relative to eager
        self.no_oracle = ""  # why fp64 could not run
        self.inherited = Inherited()
        self.decisions: list[Decisions | None] = []  # per output, with the task's inputs; measured on demand
        self.noise = False  # whether the task's outputs are rounding noise with the weights from its constructor
        self.noisy_state: set[int] = set()  # state entries that are noise

    def place(self) -> str:
        """Returns where fp64 was computed, or why it was not available."""
        return self.no_oracle or self.reference.oracle_place or self.reference.pool.device.name

    def expect(self, values: Values, rng: int, strict: bool) -> Expected:
        """Runs the reference, first in fp64, then in eager. Each run starts from the state that its own earlier calls left, as the program does, so
        rounding errors that eager has accumulated in an average do not affect the expected average. Raises `Skipped` if the task fails on these
        inputs and `strict` is false."""
        reference = self.reference
        before = reference.exact
        oracle = None
        try:
            oracle = None if self.no_oracle else reference.oracle(values, rng)
        except PartyFailure as failure:
            if failure.kind != "raised":
                raise
            if not strict and failure.error_class != SHORT:
                raise Skipped("the task does not accept such inputs", reference.outlive()) from None
            self.no_oracle = f"no fp64: {failure.error_class}: {first_lines(failure.message)[:200]}"
        try:
            eager = reference.eager(values, rng)
        except PartyFailure as failure:
            if failure.kind == "raised" and failure.error_class != SHORT and not strict:
                anew = reference.outlive()
                reference.rollback()
                raise Skipped("the task does not accept such inputs", anew) from None
            raise
        if oracle is not None and [s.shape for s in oracle.outputs.specs] != [s.shape for s in eager.outputs.specs]:
            oracle = None
        precise = oracle.outputs.tensors if oracle is not None else eager.outputs.tensors
        try:
            leaves = self._leaves(eager.outputs.tensors, precise, strict)
        except Skipped:
            reference.rollback()
            raise
        exact_state = oracle.state if oracle is not None and len(oracle.state) == len(eager.state) else eager.state
        state = self._leaves(eager.state, exact_state, True)
        if before is None:
            self.inherited = Inherited()
        reference.exact = continued(oracle, eager)
        return Expected(eager, leaves, state, values, rng, oracle, before)

    def _leaves(self, own: list[torch.Tensor], precise: list[torch.Tensor], strict: bool) -> list[Leaf]:
        if not strict and not all(all_finite(tensor) for tensor in [*own, *precise]):
            raise Skipped("the task itself does not stay finite")
        found = deviations(own, precise) if precise is not own else [(0.0, 0.0)] * len(own)
        return [self._leaf(ours, exact, strict, *off) for ours, exact, off in zip(own, precise, found, strict=True)]

    def _leaf(self, own: torch.Tensor, precise: torch.Tensor, strict: bool, error: float, share: float) -> Leaf:
        floating = continuous(own)
        if precise is own:
            return Leaf(own, own, 0.0, 0.0, no_oracle(own.dtype) if floating else 0.0, precise=False)
        if floating and not error <= chaotic_error(own.dtype):
            if not strict:
                raise Skipped("PyTorch itself is far from fp64 for these inputs")
            # The output is noise, so fp64 cannot judge it unless plain arithmetic turns out to be equally far away (`appeal`).
            return Leaf(own, own, error, 0.0, no_oracle(own.dtype), precise=False)
        limit = bound(error, [], own.dtype, self.reference.precision) if floating else 0.0
        return Leaf(precise, own, error, share, limit, tolerated(share, 0.0, own.numel()))

    def appeal(self, expected: Expected) -> None:
        """Widens the bounds to cover the error of plain arithmetic on this task with these inputs. That error is measured only on demand, because it
        takes further fp64 runs. Before and after this method, the reference is in the state left by its eager call."""
        if expected.appealed or expected.oracle is None:
            return
        expected.appealed = True
        reference, oracle = self.reference, expected.oracle
        exact = [*oracle.outputs.tensors, *oracle.state]
        leaves = [*expected.leaves, *expected.state]
        small = any(leaf.alternative.numel() < SMALL for leaf in leaves)
        reference.rollback()
        after, reference.exact = reference.exact, expected.before
        errors: list[list[float]] = [[] for _ in exact]
        shares = [0.0] * len(exact)
        begin = reference.clock()
        for draw in range(SMALL_DRAWS if small else DRAWS):
            if draw and reference.clock() - begin > self.reference.limits.oracle / 4:
                break
            try:
                rough = reference.oracle(expected.values, expected.rng, rough=self.draws.getrandbits(32))
            except PartyFailure as failure:
                if failure.error_class == SHORT and not draw:
                    failure.request = "memory"
                    failure.message = f"the device has too little memory to measure plain arithmetic on this task: {failure.message[:300]}"
                if failure.kind != "raised" or failure.request == "memory":
                    raise
                break
            found = [*rough.outputs.tensors, *rough.state]
            if [tensor.shape for tensor in found] != [tensor.shape for tensor in exact]:
                break
            for index, (error, share) in enumerate(deviations(found, exact)):
                errors[index].append(error)
                shares[index] = max(shares[index], share)
            for leaf, tensor in zip(expected.leaves, found, strict=False):
                leaf.add_plain(tensor)
        reference.eager(expected.values, expected.rng)
        reference.exact = after
        outputs = len(expected.leaves)
        errors[outputs:] = self.inherited.add(oracle.state, errors[outputs:])
        self.inherited.decided |= any(_decides(*measured) for measured in zip(leaves, errors, shares, strict=True))
        for index, (leaf, tensor, drawn, share) in enumerate(zip(leaves, exact, errors, shares, strict=True)):
            own = leaf.alternative
            if own.dtype in (torch.float64, torch.complex128):
                # Plain arithmetic used the type of the inputs, but the task's own fp64 steps are more accurate.
                kinds = {spec.torch_dtype for spec in expected.values.specs if spec.floating} - TYPES
                finer = torch.finfo(own.dtype).eps / max((torch.finfo(kind).eps for kind in kinds), default=1.0)
                drawn = [error * min(finer, 1.0) for error in drawn]
            if not continuous(own):
                leaf.tolerated = tolerated(leaf.share, share, own.numel())
            elif index >= outputs:
                allowed = allowance(own, tensor, drawn, share, reference.precision, self.inherited.decided)
                if allowed is not None:
                    leaf.reference, leaf.limit, leaf.tolerated, leaf.precise = tensor, allowed.limit, allowed.tolerated, not allowed.noise
            elif leaf.precise:
                leaf.limit = bound(leaf.error, drawn, own.dtype, reference.precision)
                leaf.tolerated = tolerated(leaf.share, share, own.numel())
            elif max(drawn, default=0.0) > chaotic_error(own.dtype):
                leaf.reference, leaf.limit = tensor, bound(leaf.error, drawn, own.dtype, reference.precision)
                self.noise = True

    def near_ties(self, expected: Expected, outputs: list[torch.Tensor]) -> None:
        """Allows elements of a program's `outputs` to be off that follow from a near tie, even if PyTorch and plain arithmetic happen to decide it
        alike: float8 numbers between two steps, which may be off by a step, and a few floating-point numbers behind a choice, such as the expert of a
        token. With errors `TIE` times those of plain arithmetic, each of them changes within a few draws; a number that stays is wrong. Before and
        after this method, the reference is in the state left by its eager call."""
        reference, oracle = self.reference, expected.oracle
        wrong: dict[int, torch.Tensor] = {}
        for index, (leaf, value) in enumerate(zip(expected.leaves, outputs, strict=False)):
            mask = _perhaps_tied(leaf, value)
            if mask is not None and float(mask.double().mean()) > leaf.tolerated:
                wrong[index] = mask
        if oracle is None or not wrong:
            return
        reference.rollback()
        after, reference.exact = reference.exact, expected.before
        left = dict(wrong)
        begin = reference.clock()
        for _ in range(TIE_DRAWS):
            if reference.clock() - begin > self.reference.limits.oracle / 4:
                break
            try:
                moved = reference.oracle(expected.values, expected.rng, self.draws.getrandbits(32), TIE).outputs.tensors
            except PartyFailure as failure:
                if failure.kind != "raised":
                    raise
                break
            if [tensor.shape for tensor in moved] != [tensor.shape for tensor in oracle.outputs.tensors]:
                break
            for index, mask in left.items():
                other = off_mask(moved[index], oracle.outputs.tensors[index], TIE * expected.leaves[index].limit)
                left[index] = mask & ~other.view(mask.shape)
            if not any(bool(mask.any()) for mask in left.values()):
                break
        reference.eager(expected.values, expected.rng)
        reference.exact = after
        for index, mask in left.items():
            if not bool(mask.any()):
                leaf = expected.leaves[index]
                leaf.tolerated = float(wrong[index].double().mean())
                if leaf.floating:
                    leaf.plain_clusters = max(leaf.plain_clusters, spread.clusters(wrong[index]))
                else:
                    leaf.plain_step = max(leaf.plain_step, 1)

    def timed_bounds(self, appeal: bool = False) -> tuple[list[float], list[float], list[tuple[float, ...] | None]]:
        """Returns bounds, shares and quantiles (`verifier.correctness.spread`) for the outputs of timed calls, which are compared with eager's
        outputs. The bound is the largest one observed with the task's own inputs, plus eager's own error and a margin for calls outside the
        trials."""
        if appeal and not self.timed_appeal:
            self.timed_appeal = True
            if self.first_rng is not None and self.first_inputs is not None:
                first = self.recall(self.first_inputs())
                if not first.appealed:
                    self.appeal(first)
                self.remember(first)
                self.decisions = self._decisions(first)
        limits = [1.5 * limit + 1.5 * error for limit, error in zip(self.bounds, self.errors, strict=True)]
        return limits, [min(2 * share, 0.5) for share in self.shares], self.quantiles

    def _decisions(self, expected: Expected) -> list[Decisions | None]:
        """Measures how often rounding changes a decision, using errors many times larger than those of plain arithmetic. Before and after this
        method, the reference is in the state left by its eager call."""
        reference, oracle = self.reference, expected.oracle
        if oracle is None:
            return []
        exact = oracle.outputs.tensors
        counts: list[list[tuple[float, int]]] = [[] for _ in exact]
        reference.rollback()
        after, reference.exact = reference.exact, expected.before
        begin = reference.clock()
        for times in TIMES:
            if reference.clock() - begin > self.reference.limits.oracle / 4:
                break
            try:
                found = reference.oracle(expected.values, expected.rng, self.draws.getrandbits(32), times).outputs.tensors
            except PartyFailure as failure:
                if failure.kind != "raised":
                    raise
                break
            if [tensor.shape for tensor in found] != [tensor.shape for tensor in exact]:
                break
            for leaf, tensor, wanted, seen in zip(expected.leaves, found, exact, counts, strict=True):
                seen.append((times, told_apart(off(tensor, wanted, leaf.limit * times), tensor)))
        reference.eager(expected.values, expected.rng)
        reference.exact = after
        return [measured(seen) for seen in counts]

    def recall(self, values: Values) -> Expected:
        """Restores the first trial's expectation and the reference's state after it. To do so, constructs the model again and calls it once.
        `values` contains the inputs of that trial."""
        rng = self.first_rng
        assert rng is not None
        self.reference.take_state(self.reference.state_tensors)
        if self.first is None:
            return self.expect(values, rng, strict=True)
        run = self.reference.eager(values, rng)
        self.inherited, self.reference.exact = Inherited(), continued(self.first.oracle, run)
        return self.first

    def remember(self, expected: Expected) -> None:
        """Keeps the data that `timed_bounds` needs from a trial with the task's own inputs."""
        if self.first_rng is None:
            self.first_rng = expected.rng
            self.first = expected if not large(expected.outputs.nbytes) else None
        self.noisy_state |= {index for index, leaf in enumerate(expected.state) if expected.oracle is not None and not leaf.precise}
        leaves = expected.leaves
        fresh = not self.bounds or len(self.bounds) != len(leaves)
        before = [(0.0, 0.0, 0.0)] * len(leaves) if fresh else list(zip(self.bounds, self.errors, self.shares, strict=True))
        self.bounds = [max(leaf.limit, old[0]) for leaf, old in zip(leaves, before, strict=True)]
        self.errors = [max(leaf.error if leaf.precise else 0.0, old[1]) for leaf, old in zip(leaves, before, strict=True)]
        self.shares = [max(leaf.tolerated, old[2]) for leaf, old in zip(leaves, before, strict=True)]
        known = [None] * len(leaves) if fresh else self.quantiles
        self.quantiles = [self._beside_eager(leaf, old, fresh) for leaf, old in zip(leaves, known, strict=True)]

    def _beside_eager(self, leaf: Leaf, before: tuple[float, ...] | None, fresh: bool) -> tuple[float, ...] | None:
        """Returns the limits on the quantiles for a comparison with eager, which has its own errors. The limits are maxima over the trials. Returns
        null if any trial had no limits."""
        found = leaf.quantiles(self.reference.precision)
        if found is None or (before is None and not fresh):
            return None
        now = [1.5 * limit + 1.5 * own for limit, own in zip(*found, strict=True)]
        return tuple(now) if before is None else tuple(map(max, before, now))


def continued(oracle: Run | None, eager: Run) -> list[torch.Tensor] | None:
    """Returns fp64's own state for its next call, or null if that call has to start with eager's state."""
    if oracle is None or [tensor.shape for tensor in oracle.state] != [tensor.shape for tensor in eager.state]:
        return None
    return None if large(sum(tensor.nbytes for tensor in oracle.state)) else oracle.state


def _decides(leaf: Leaf, drawn: list[float], share: float) -> bool:
    """Returns whether plain arithmetic decides differently from fp64, or is far from it overall."""
    own = leaf.alternative
    return continuous(own) and not own.is_complex() and (share > 0 or max(drawn, default=0.0) > chaotic_error(own.dtype))


def _perhaps_tied(leaf: Leaf, value: torch.Tensor) -> torch.Tensor | None:
    """Returns a mask of the wrong elements in an output of float8 numbers, or in a floating-point output of which hardly any element is wrong.
    Returns null for any other output."""
    if value.dtype != leaf.reference.dtype and value.dtype != leaf.alternative.dtype or value.shape != leaf.reference.shape:
        return None
    if value.dtype in TYPES:
        return differing(value, leaf.reference)
    if not value.numel() or not leaf.floating or not leaf.precise or value.is_complex() or large(value.nbytes):
        return None
    mask = off_mask(value, leaf.reference, leaf.limit).view(value.shape)
    return mask if 0 < float(mask.double().mean()) <= FLIPPED else None


def _vanishes(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.numel() > 0 and not bool(wide(tensor).any())


def first_lines(text: str) -> str:
    return " ".join(line.strip() for line in text.splitlines())[:400]
