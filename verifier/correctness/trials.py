"""The `correctness` stage, which calls the program several times in its runner and compares each call with the reference's fp64 result for the same
secret inputs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from verifier.correctness.bearing import borne_alone
from verifier.correctness.calling import Calls, Subject
from verifier.correctness.expectation import SHORT, Expected, Skipped, first_lines
from verifier.correctness.inputs import DISTRIBUTIONS, MIXED
from verifier.correctness.not_a_number import NOTE, Asked, judged, prepared
from verifier.correctness.trial_plan import Step, TrialPlan, Way, Width
from verifier.correctness.weights import DIFFER, Constructions
from verifier.judge.memory import large
from verifier.judge.party_failure import PartyFailure
from verifier.randomising import hides
from verifier.report import Finding, Trial, WeightsFrom
from verifier.task import Flag

LEAST_TRIALS = 8  # these steps run regardless of how slow they are
RANDOM_NUMBERS = "the task draws random numbers: a program has to take torch's, from the same calls of its generator"
SEEDS = 3  # number of constructions if weights cannot be loaded
CONSTRUCTIONS = (1, 3)  # range of the number of constructions before the trial that constructs again


@dataclass
class Verdict:
    wrong: str = ""
    weights: WeightsFrom = "loaded"
    flags: list[Flag] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    untried: list[str] = field(default_factory=list)  # trials that were skipped, each with the reason


class Trials(Calls):
    """The trials of one program, in the order of the plan."""

    borne: Width | None = None  # how widely the task lets other weights vary (`other_weights`); None until some have been tried

    def run(self, subject: Subject) -> Verdict:
        """Runs all trials and stops at the first wrong result. Raises `PartyFailure` if the program crashes, and `LayoutError` if its answers are
        unusable."""
        verdict = Verdict(flags=list(self.flags))
        self.done, self.program_seconds, self.compiling_seconds, self.borne = [], 0.0, 0.0, None
        self.reference.take_state(self.original)
        self.constructions = Constructions(self.reference, self.weight_seed)
        refused = self._construct(subject, self.original)
        if refused and self.reference.state:
            self.constructions.match(subject.runner, self.original)
            self._construct(subject, self.original)
            self._bound(verdict, f"the task's state dict does not load strictly ({first_lines(refused)})")
        elif self._compared_entries() and self.constructions.renamed(subject.runner, self.original, self._compared_entries()):
            self._construct(subject, self.original)
        verdict.wrong = self._no_counterpart()
        begin = self.reference.clock()
        plan = TrialPlan(self.reference, self.draws, self.original, self.full, lambda: self.first_inputs)
        for number, step in enumerate(plan.steps(self.expectations) if not verdict.wrong else ()):
            spent = self.reference.clock() - begin - self.program_seconds  # a slow program does not cause trials to be skipped
            if not step.needed and number >= LEAST_TRIALS and spent > self.limits.correctness:
                verdict.untried.append(f"{step.name}: the task is slow")
                continue
            verdict.wrong = self._wrong(step, plan, subject, verdict)
            if verdict.wrong:
                break
        verdict.wrong = verdict.wrong or self._overwritten()
        if self.laid:
            message = "outputs have another layout than the task's: they are copied to the task's layout before the clock stops"
            verdict.findings.append(Finding(rule="layout", severity="note", message=message, source="runtime"))
        self._flag(verdict)
        return verdict

    def _bound(self, verdict: Verdict, why: str) -> None:
        """Records how the program receives its weights from now on."""
        how = verdict.weights = self.constructions.binding.how
        done = "they are matched by equal values under one seed" if how == "matched" else "both sides are only constructed, under several seeds"
        message = f"{DIFFER}: {why}, so {done}"
        verdict.findings.append(Finding(rule="weights", severity="note" if how == "matched" else "downgrade", message=message, source="runtime"))

    def _no_counterpart(self) -> str:
        """Reports that the program lacks one of the task's entries (state that changes, or a parameter whose gradient is requested). Returns an empty
        string if none is missing."""
        missing = self.constructions.binding.missing(self._compared_entries())
        return f"{DIFFER}: there is nothing that could be the task's {missing[0]}" if missing else ""

    def _compared_entries(self) -> list[str]:
        """Returns the task's names for the state that changes and the parameters whose gradients are requested."""
        wanted = self.reference.backward["sources"] if self.reference.backward is not None else []
        loaded = {entry.name for entry in self.reference.state}
        return [*(name for name in self.reference.mutated if name in loaded), *(name for name in wanted if not name.startswith("input "))]

    def _wrong(self, step: Step, plan: TrialPlan, subject: Subject, verdict: Verdict) -> str:
        """Describes what the program gets wrong in this step. Returns an empty string if it is correct."""
        seeded = self.constructions.binding.how == "seeded"
        if (step.kind in ("weights", "constructed again") or (step.kind == "not a number" and self.moves)) and (stale := self._overwritten()):
            return stale
        if step.kind == "constructed again":
            self._construct_again(step, subject)
        if step.kind == "not a number":
            trial = self._not_a_number(step, verdict)
        else:
            trial = self._several(step, subject) if seeded and step.kind == "weights" else self._one_or_refused(step, plan, subject, verdict)
        if trial is None or trial.ok:
            return ""
        if step.kind != "weights" or not all(earlier.ok for earlier in self.done[:-1]):
            drawn = f" ({RANDOM_NUMBERS})" if self.stochastic and trial.bound is not None and trial.output.startswith("out") else ""
            return f"{trial.name}: {trial.detail}{drawn}"
        if seeded:
            return f"{DIFFER}: {trial.name}: {trial.detail}"
        assumed = self._assumed(step, plan, subject, verdict)
        if assumed:
            return f"{trial.name}: {trial.detail} ({assumed})"
        # The program is correct as constructed but wrong after other weights are loaded, so its constructor may derive values from its weights.
        self.done.pop()
        self.constructions.seeded(subject.runner)
        self._construct(subject, self.original)
        self._bound(
            verdict, f"results are right only with the weights that the constructor makes (after another state dict is loaded: {trial.detail})"
        )
        missing = self._no_counterpart()
        if missing:
            return missing
        trial = self._several(step, subject)
        return "" if trial.ok else f"{DIFFER}: {trial.name}: {trial.detail}"

    def _one_or_refused(self, step: Step, plan: TrialPlan, subject: Subject, verdict: Verdict) -> Trial | None:
        """Runs a step with other numbers as arguments. A program that raises an error for other numbers may be specialised for the original ones."""
        try:
            return self._one(step, plan, subject, verdict)
        except PartyFailure as failure:
            if step.kind != "numbers" or failure.kind != "raised" or failure.request in ("memory", "start") or failure.error_class == SHORT:
                raise
            message = (
                f"made for the plain values among the task's arguments; with {step.name} it raises {failure.error_class}: "
                f"{first_lines(failure.message)}"
            )
            verdict.findings.append(Finding(rule="numbers", severity="note", message=message[:300], source="runtime"))
            self._begin_again(subject)
            return None

    def _one(self, step: Step, plan: TrialPlan, subject: Subject, verdict: Verdict) -> Trial | None:
        """Runs a step with the first alternative that the task can handle. Returns null if it can handle none."""
        reason = "there is nothing to vary"
        for way in step.ways:
            anew = False  # whether the reference is in its constructed state, without the changes that calls make
            if way.weights is not None:
                weights = way.weights()
                self.reference.take_state(weights)
                self._construct(subject, weights)
                del weights
            try:
                if way.domain is MIXED and plan.each is None:
                    plan.each, anew = borne_alone(self.reference, self.expectations, step.seed)
                    if anew:
                        self._begin_again(subject)
                values = way.draw()
                trial = self._record(self._trial(step, way, values)) if values is not None else None
                borne = trial is not None
            except Skipped as skipped:
                trial, borne, reason, anew = None, False, str(skipped), skipped.anew
            except PartyFailure as failure:
                if step.kind == "own" or failure.whose != "reference" or not self.reference.outlive():
                    raise
                trial, borne, reason, anew = None, False, "the task does not accept such inputs", True
            if way.weights is not None or anew:
                self._begin_again(subject)
            plan.bears(way, borne)
            if borne and way.wide is not None:
                self.borne = way.wide
            if trial is not None:
                return trial
        verdict.untried.append(f"{step.name}: {reason}")
        self.on_progress(f"{step.name}: skipped, {reason}")
        return None

    def _not_a_number(self, step: Step, verdict: Verdict) -> Trial | None:
        """Calls the program with inputs that contain NaN, and with inputs that contain infinity. If calls change the state, both sides start afresh
        before and after each call, because NaN would stay in the state."""
        first, subject = self.expectations.first, self.subject
        if first is None or subject is None:
            return None
        trial = None
        if self.moves:
            self._begin_again(subject)
        calls = prepared(self.reference, first.values, first.run.outputs.tensors, first.rng, self.draws)
        while trial is None or trial.ok:
            try:
                asked = next(calls, None)
            except PartyFailure as failure:
                if failure.kind != "raised" or failure.error_class == SHORT:
                    raise
                self.reference.outlive()
                self._begin_again(subject)
                verdict.untried.append(f"{step.name}: the task does not accept such inputs")
                break
            if asked is None:
                break
            trial = self._lost(step, asked, first, subject, verdict)
            del asked
            if self.moves:
                self._begin_again(subject)
        return self._record(trial) if trial is not None else None

    def _lost(self, step: Step, asked: Asked, first: Expected, subject: Subject, verdict: Verdict) -> Trial:
        assert subject.caller is not None
        call = self._held_call(subject.caller, asked.values, asked.rng, step.fresh, first.run.aliased)
        self.examiner.pass_over()
        if len(call.outputs) != len(asked.required) or any(a.shape != b.shape for a, b in zip(call.outputs, first.run.outputs.tensors, strict=True)):
            return Trial(name=step.name, seed=step.seed, ok=False, detail="the outputs were not delivered")
        detail, swallowed = judged(asked, call.outputs, self.reference, first.run.outputs.tree)
        if swallowed and not detail and not any(finding.rule == "nan" for finding in verdict.findings):
            verdict.findings.append(Finding(rule="nan", severity="note", message=NOTE, source="runtime"))
        return Trial(name=step.name, seed=step.seed, ok=not detail, detail=detail)

    def _construct_again(self, step: Step, subject: Subject) -> None:
        """Constructs the object again an unpredictable number of times and calls it once with inputs that differ from the trial's. The trial's call
        then exposes a program that starts to cache results only at its n-th construction."""
        state = sum(tensor.nbytes for tensor in self.original)
        for _ in range(1 if large(16 * state) else self.draws.randint(*CONSTRUCTIONS)):
            self._construct(subject, self.original)
        if self.reference.mutated:  # both sides start afresh
            self.reference.take_state(self.original)
            return
        caller, first = subject.caller, self.expectations.first
        values = self.reference.inputs(step.seed)
        if caller is not None and first is not None and caller.expected == first.outputs.specs and values.specs == first.values.specs:
            self._held_call(caller, values, first.rng, True, first.run.aliased)
            self.examiner.pass_over()

    def _several(self, step: Step, subject: Subject) -> Trial:
        """Tries other weights if neither side loads any. Uses several seeds and stops at the first wrong result."""
        trial = Trial(name=step.name, seed=step.seed, ok=True)
        try:
            for number in range(1, SEEDS + 1):
                name, seed = f"{step.name}, constructed {number}", (step.seed + number) % 2**32
                stayed = self.constructions.anew(subject.runner, seed)
                if stayed:
                    return Trial(name=name, seed=seed, ok=False, detail=f"only loading gives {stayed} other values")
                self._call_anew(subject)
                values = self.reference.inputs(seed)
                try:
                    trial = self._record(self._trial(Step(name, seed, [], "weights"), Way(lambda: None), values))
                except Skipped:
                    continue
                if not trial.ok:
                    break
        finally:
            if subject.runner.alive and self.reference.party.alive:
                self.constructions.restore(subject.runner)
                self._call_anew(subject)
        return trial

    def _assumed(self, step: Step, plan: TrialPlan, subject: Subject, verdict: Verdict) -> str:
        """Explains why a program that fails with other weights is wrong, unless it only transforms its weights in the constructor. Such a program
        fails with any loaded weights. By contrast, a program that assumes a zero bias or a scale of one is correct as long as these stay
        unchanged, and one that assumes positive gains, as long as all signs do."""
        names = [entry.name for entry in self.reference.state]
        constant = plan.constants
        fixed = [i for i, entry in enumerate(self.reference.state) if hides(self.original[i], entry.parameter) or i in constant]
        loose = [i for i, entry in enumerate(self.reference.state) if entry.parameter and entry.spec.inexact and i not in fixed]
        buffers = [i for i, entry in enumerate(self.reference.state) if entry.spec.inexact and not entry.parameter and i not in fixed]
        for same in (fixed, [*fixed, *buffers]) if buffers else (fixed,):
            said = f"it takes the values for granted that the constructor gives to {', '.join(names[index] for index in same[:4])}"
            if same and not loose:
                return said
            if same and self._right_with(same, step, plan, subject, verdict):
                return said
        narrow = [way for way in step.ways if way.wide is not None and not way.wide[0]]
        if self.borne is not None and self.borne[0] and self._right_with([], replace(step, ways=narrow), plan, subject, verdict):
            return "it takes the signs for granted that the constructor gives to the weights"
        return ""

    def _right_with(self, kept: list[int], step: Step, plan: TrialPlan, subject: Subject, verdict: Verdict) -> bool:
        """Returns whether the program is correct with other weights as long as these state entries stay unchanged."""

        def of(way: Way) -> Way:
            drawn = way.weights
            assert drawn is not None
            return replace(
                way, weights=lambda: [own if i in kept else other for i, (own, other) in enumerate(zip(self.original, drawn(), strict=True))]
            )

        trial = self._one(replace(step, ways=[of(way) for way in step.ways]), plan, subject, verdict)
        return trial is not None and trial.ok

    def _flag(self, verdict: Verdict) -> None:
        varied = [trial for trial in self.done if trial.name.removeprefix("grad ").startswith(DISTRIBUTIONS)]
        if self.expectations.noise and "trivial" not in verdict.flags:
            verdict.flags.append("trivial")
        if self.input_specs and not varied and not verdict.wrong:
            verdict.flags.append("narrow")
