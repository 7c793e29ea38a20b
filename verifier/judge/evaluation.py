"""The `verify` job: evaluates one program against one task, stage by stage, and ends with a report."""

from __future__ import annotations

import ast
import contextlib
import random
import secrets
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch

from verifier.build.building import BuildFailed, Building, resources_of_cubins
from verifier.build.headers import Headers
from verifier.build.late import Built, requested
from verifier.build.store import Store
from verifier.channel import MAX_ARTEFACTS
from verifier.confinement.layers import protection
from verifier.correctness.calling import Subject
from verifier.correctness.trials import Trials, Verdict
from verifier.devices.base import DeviceError
from verifier.integrity.evidence import Evidence
from verifier.integrity.judging import Observed, judge_evidence
from verifier.integrity.observation import Observation
from verifier.integrity.sampling.glancing import Glancing, begin_glancing
from verifier.integrity.static import inspect_source
from verifier.integrity.variants import Variant
from verifier.jobs import StageEvent, VerifyJob
from verifier.judge.admission import task_failure
from verifier.judge.asking import Party
from verifier.judge.capturing import known_capture
from verifier.judge.endings import Ended, TaskUnusable, give_reasons, verdict_of
from verifier.judge.memory import large, too_little
from verifier.judge.opening import Opening
from verifier.judge.party_failure import PartyFailure, without_gpu
from verifier.judge.pool import Pool, Role, data_folder
from verifier.judge.rival import ready_rival
from verifier.judge.session import ReferenceSession, load_baseline
from verifier.layout import LayoutError
from verifier.program import Program
from verifier.report import Finding, Report, Stage, StageName
from verifier.source import SourceError, parse
from verifier.startup import cutlass
from verifier.task import Task
from verifier.timing.host_repeatability import repeatability
from verifier.timing.roofline import floor_ms
from verifier.timing.stage import measure
from verifier.timing.tournament import Tournament

_RUNNER: list[Role] = ["runner"]
OnStage = Callable[[StageEvent], None]
BUSY = frozenset(
    {"burns-cpu", "crowded", "clock", "busy-host"}
)  # findings that trigger another measurement, and that end the evaluation if they recur


class Evaluation:
    """Holds the data that stages pass to each other. `sessions` provides a reference that may already have loaded the task."""

    def __init__(
        self,
        job: VerifyJob,
        pool: Pool,
        data_dir: Path,
        session: Callable[[VerifyJob], ReferenceSession],
        on_stage: OnStage,
        without_static: bool = False,
        headers: Headers | None = None,
        opening: Opening | None = None,
    ):
        self.job = job
        self.pool = pool
        self.device = pool.device
        self.limits = pool.limits
        self.session_for = session
        self.on_stage = on_stage
        self.data_dir = data_dir
        self.headers = headers
        self.opening = opening
        environment = self.device.environment()
        arch = self.device.variables("builder").get("STITCH_CUDA_ARCH", environment.device_name)  # on the CPU, code is generated for this CPU model
        self.store = Store(
            data_folder(data_dir, "builds"), environment.compiler, environment.torch, environment.device_model, arch, *cutlass.signature()
        )
        self.seed = job.seed if job.seed is not None else secrets.randbits(48)
        self.report = Report(
            task="", program="", tier=job.tier, precision=job.precision, mode=job.mode, status="infrastructure_error",
            environment=environment, protection=protection(), seed=self.seed, without_static=without_static,
        )  # fmt: skip
        self.known = repeatability(data_dir, self.device)
        self.runner: Party | None = None
        self.made: Built | None = None
        self.rival: Built | None = None
        self.tournament: Tournament | None = None

    def run(self) -> Report:
        """Runs the evaluation. Raises `TaskUnusable`, or `Cancelled` if the client withdrew the job. Every fault of the program becomes a report."""
        report = self.report
        try:
            self.task = Task.read(self.job.task_source)
        except SourceError as error:
            raise TaskUnusable(f"the task cannot be used: {error}") from None
        report.task = self.task.sha
        if self.opening is not None:
            report.stages.append(self.opening.stage())
            self.on_stage(StageEvent(stage="startup", status="passed", seconds=report.stages[0].seconds, detail=report.stages[0].detail))
        try:
            self._stages()
            report.status = "passed"
        except Ended as ended:
            report.status, report.message = ended.status, ended.message
        except PartyFailure as failure:
            report.status, report.message = verdict_of(failure, shared=self.pool.gate.others())
        except DeviceError as error:
            report.status, report.message = "infrastructure_error", str(error)
        except torch.OutOfMemoryError:
            report.status, report.message = "infrastructure_error", too_little(self.device, "for the judge's part of this evaluation")
        except LayoutError as error:
            report.status, report.message = "crashed", f"the program's answer cannot be used: {error}"
        finally:
            if self.tournament is not None:
                self.tournament.close()  # baselines may have started even if the timing stage was never reached
            if self.runner is not None:
                self.pool.dismiss(self.runner)
            report.protection = protection()  # a party may have reported a failed layer
            if self.made is not None:
                self._account(self.made)
        if report.status != "passed":
            report.timing, report.faster = None, False
            report.reasons.setdefault("timing", "performance exists only on a program that passed")
        give_reasons(report)
        return report

    def built(self) -> Built:
        """Runs only the `static` and `build` stages, for a job that times nothing. Raises `Ended` if the program fails in them."""
        with self._stage("static"):
            self._static()
        with self._stage("build") as stage, self._building(stage) as building:
            return self._built(building)

    def _stages(self) -> None:
        with self._stage("static") as stage:
            self._static()
            if self.report.without_static:
                stage.status, stage.detail = "skipped", "switched off for a test: this report is no result"
        with self._stage("build") as stage, self._building(stage) as building:
            # While the compiler works, the reference loads the task, draws inputs and runs the task, and the runner and the baseline get ready.
            if not self.pool.expects(("runner", self.job.precision, self.job.mode)):
                skipper: list[Role] = (
                    ["runner"] if self.device.kind == "cuda" and self.job.tier == "quick" else []
                )  # process in which the program's own kernels will be skipped
                self.pool.anticipate([(role, self.job.precision, self.job.mode) for role in [*_RUNNER, *skipper]])
            trials, prepared = self._prepare(building)
            self._built(building)
            stage.detail = "cached" if self.report.build and self.report.build.cached else ""
        with self._stage("correctness", before=prepared) as stage:
            self._with_builds(self._correct, trials)
            stage.detail = f"{sum(trial.ok for trial in self.report.trials)} of {len(self.report.trials)} trials"
        with self._stage("timing") as stage:
            self._with_builds(self._time, trials, timed=True)
            speedup = self.report.speedup
            stage.detail = f"{speedup.ratio:.2f}x eager [{speedup.low:.2f}, {speedup.high:.2f}]" if speedup else ""
        with self._stage("integrity") as stage:
            self._observe(trials)
            stage.detail = self.report.program_class or ""

    @contextlib.contextmanager
    def _stage(self, name: StageName, before: float = 0.0) -> Iterator[Stage]:
        """Times a stage. `before` is the time in seconds of the stage's work that was done during another stage."""
        begin = time.monotonic() - before
        stage = Stage(name=name, status="passed", seconds=0)
        self.on_stage(StageEvent(stage=name, status="started"))
        try:
            yield stage
        except BaseException as error:
            stage.status = "failed"
            stage.detail = getattr(error, "message", str(error)).split("\n")[0][:300]
            raise
        finally:
            stage.seconds = stage.seconds or round(time.monotonic() - begin, 4)
            self.report.stages.append(stage)
            self.on_stage(StageEvent(stage=name, status=stage.status, seconds=stage.seconds, detail=stage.detail))

    # Stages

    def _static(self) -> None:
        report = self.report
        source = self.job.program_source
        try:
            tree: ast.Module = parse(source)
            self.program = Program.read(source)
        except SourceError as error:
            report.problems = error.problems
            raise Ended("build_failed", f"the program cannot be read: {error}") from None
        report.program = self.program.sha
        if report.without_static:
            return
        report.findings = inspect_source(tree, source)
        refused = [finding for finding in report.findings if finding.severity == "refuse"]
        if refused:
            raise Ended("rejected", f"line {refused[0].line}: {refused[0].message}")

    @contextlib.contextmanager
    def _building(self, stage: Stage) -> Iterator[Building]:
        """Starts the program's build. The stage lasts as long as the build, regardless of concurrent work."""
        begun = self.opening.raw if self.opening is not None else None
        building = Building(self.pool, self.store, self.program, self.headers, begun)
        try:
            yield building
        except BuildFailed as failed:
            self.report.build, self.report.problems = failed.info, failed.problems
            raise Ended(failed.status, without_gpu(failed.message)) from None
        finally:
            if building.done.is_set():
                stage.seconds = building.seconds
            building.close()

    def _built(self, building: Building) -> Built:
        artefacts, self.report.build = building.result()
        self.made = Built(self.pool, self.store, self.headers, self.program, artefacts, self._progress)
        return self.made

    def _with_builds(self, work: Callable[[Trials], None], trials: Trials, timed: bool = False) -> None:
        """Runs `work`, and repeats it in a fresh runner whenever the program requests a build. If `work` was being `timed`, all trials are repeated
        first. This ensures that the timed libraries are the ones that passed the trials. Raises the same exceptions as `work`, and `Ended`."""
        while True:
            try:
                return work(trials)
            except PartyFailure as failure:
                made = self.rival if failure.whose == "rival" else self.made
                if made is None:
                    raise
                self._drop_runner()  # no compiler runs alongside a program
                if timed and self.tournament is not None:
                    self.tournament.close()
                try:
                    made.answer(failure)
                except BuildFailed as failed:
                    if made is self.rival:
                        raise Ended("inconclusive", f"the program that it is timed against does not build: {failed.message}") from None
                    self.report.problems = failed.problems
                    if self.report.build is not None and failed.info is not None:
                        self.report.build.compiler_output = failed.info.compiler_output
                    raise Ended(failed.status, failed.message) from None
            self.report.findings = [finding for finding in self.report.findings if finding.source == "static"]
            if timed:
                self._with_builds(self._correct, trials)
                self.tournament = self._new_tournament(trials)

    def _account(self, made: Built) -> None:
        """Records which builds were requested, and when. Their sources are inspected like the program's own source."""
        report = self.report
        if report.build is not None:
            report.build.requests = requested(made.artefacts)
            report.build.seconds = made.artefacts.seconds or report.build.seconds
        report.findings += made.findings()
        stale: set[str] = set()
        if report.program_class in ("custom", "mixed"):
            stale = {"no-kernel"}  # kernels that no rule finds in the source were observed running
        if report.status == "passed":
            stale |= BUSY  # it was measured again, on a quiet host
        report.findings = [finding for finding in report.findings if finding.rule not in stale]

    def _prepare(self, building: Building) -> tuple[Trials, float]:
        """Returns the trials and the time in seconds taken to prepare them. The reference has loaded the task, and its first results are known."""
        begin = time.monotonic()
        reference = None
        try:
            reference = self.session_for(self.job)
            reference.checkpoint = building.raise_failure
            building.watch(reference.party)
            if reference.eager_party is None and not self.pool.expects(("baseline", self.job.precision, self.job.mode)):
                self.pool.anticipate([("baseline", self.job.precision, self.job.mode)])
            full, source = self.job.tier == "full", self.job.program_source
            trials = Trials(reference, self.seed, full, self._progress, backward=self.job.backward, program=source)
            trials.prepare()
            # Eager constructs its model while the program's trials run.
            load = partial(load_baseline, source=self.job.task_source, seed=trials.weight_seed, limits=self.limits)
            self.pool.ahead(("baseline", self.job.precision, self.job.mode), load)
        except PartyFailure as failure:
            building.raise_failure()  # raises an exception if this is why the reference was terminated
            raise TaskUnusable(task_failure(failure)) from None
        except LayoutError as error:
            raise TaskUnusable(f"the task cannot be used: {error}") from None
        finally:
            building.watch(None)
            if reference is not None:
                reference.checkpoint = None
        self.tournament = self._new_tournament(trials)
        if self.job.tier == "full" and self.job.rival_source is None:
            self.tournament.begin_ahead()
        return trials, time.monotonic() - begin

    def _correct(self, trials: Trials) -> None:
        report = self.report
        for attempt in (1, 2):
            try:
                verdict: Verdict = trials.run(self._subject())
                break
            except PartyFailure as failure:
                if not trials.reference.party.alive:
                    raise Ended("infrastructure_error", f"the process of the reference ended: {failure.message}; run it again") from None
                # A first crash is not yet blamed on the program: the work is repeated in a fresh process.
                if failure.kind != "crashed" or attempt == 2:
                    report.trials = trials.done
                    raise
                report.findings.append(Finding(rule="crash", severity="note", message=f"the first runner died: {failure.message}", source="runtime"))
                self._drop_runner()
        report.trials, report.weights = trials.done, verdict.weights
        report.untried = verdict.untried
        report.flags, report.backward, report.oracle = verdict.flags, self.job.backward, trials.expectations.place()
        report.findings += verdict.findings
        if verdict.wrong:
            without = trials.expectations.no_oracle
            raise Ended("wrong_result", verdict.wrong + (f" (held against PyTorch's own result: {without})" if without else ""))

    def _subject(self) -> Subject:
        """Returns a fresh runner that has imported the program."""
        self._drop_runner()
        self.runner = self.pool.take("runner", self.job.precision, self.job.mode)
        return self._enlist(self.runner)

    def _enlist(self, runner: Party) -> Subject:
        assert self.made is not None
        return self._imported(runner, self.made)

    def _variant(self, runner: Party, variant: Variant) -> Subject:
        runner.import_program(variant.source, variant.artefacts, self.limits.load)
        return Subject(runner)

    def _imported(self, runner: Party, made: Built) -> Subject:
        runner.import_program(made.program.source, made.artefacts, self.limits.load)
        return Subject(runner)

    def _time(self, trials: Trials) -> None:
        report = self.report
        tournament = self.tournament
        assert tournament is not None
        tournament.rival, tournament.progress = self._rival(), partial(self._progress, stage="timing")
        capture = known_capture(self.data_dir, self.task.sha, self.job.mode)
        floor, reason = floor_ms(self.device, trials.bytes_moved(), capture.flops if capture else None, self.job.precision)
        with contextlib.ExitStack() as last:
            if large(trials.ledger().exchanged):  # several such concurrent verifications would run out of memory
                trials.make_room()  # while it waits, other verifications can use the memory that it does not need
                told = partial(tournament.progress, "waits until another verification has left the device's memory")
                tournament.waiting += last.enter_context(self.pool.gate.room(told))
            last.callback(tournament.release)
            report.timing = timing = measure(tournament, trials, report, floor, self._subject)
            report.faster = timing.comparisons[0].speedup.low > 1 and not report.without_static
            report.reasons.update(tournament.reasons)
            report.peak_bytes = trials.peak_bytes()
            report.floor_ms = floor
            if floor is not None:
                report.floor_fraction = floor / timing.program_ms if timing.program_ms else None
            if reason:
                report.reasons["floor_ms"] = reason

    def _new_tournament(self, trials: Trials) -> Tournament:
        return Tournament(self.pool, trials, self.job, self.seed, self._enlist, self.known, inspect=self._inspect)

    def _inspect(self, party: Party) -> Glancing | None:
        assert self.made is not None
        return begin_glancing(party, self.made.artefacts, data_folder(self.data_dir, "shim"))

    def _rival(self) -> Callable[[Party], Subject] | None:
        """Returns the function that enlists the job's other program in a runner once that program is built. Returns null if the job has no other
        program."""
        if self.job.rival_source is None:
            return None
        made = self.rival = self.rival or ready_rival(self.job.rival_source, self.report, self.pool, self.store, self.headers)
        return lambda runner: self._imported(runner, made)

    def _observe(self, trials: Trials) -> None:
        report = self.report
        program_ms = report.timing.program_ms if report.timing else 0.0
        assert self.made is not None
        try:
            evidence, seen = self._evidence(trials, program_ms)
        except PartyFailure as failure:
            if failure.kind == "wanted":
                line = f"line {failure.line}: " if failure.line else ""
                raise Ended("build_failed", f"{line}it requests a build while it is observed that it did not request while it was timed") from None
            report.reasons["own_share"] = f"the observed call failed: {failure.message.splitlines()[0] if failure.message else failure.kind}"
            report.program_class = "orchestration"  # work that was not observed is not counted
            return
        judged = judge_evidence(evidence, self.program.source, self.made.artefacts, self.device.kind, program_ms, seen)
        report.kernels, report.torch_compute = judged.kernels, judged.torch_compute
        report.own_share, report.program_class = judged.own_share, judged.program_class or "orchestration"
        report.findings += judged.findings
        if judged.own_share:  # work that the source text does not show, such as loops in a binding module, was observed running
            report.findings = [finding for finding in report.findings if finding.rule != "no-kernel"]
        self._triton(trials)
        if judged.reason:
            report.reasons["own_share"] = judged.reason
        if judged.status:
            raise Ended(judged.status, judged.message)

    def _triton(self, trials: Trials) -> None:
        """Records the code that Triton compiled in the runner as evidence about the program's kernels, because the judge has no build of them to
        keep."""
        report = self.report
        if self.device.kind != "cuda" or report.build is None or "triton" not in self.program.source or trials.subject is None:
            return
        with contextlib.suppress(PartyFailure, ValueError):
            frame = trials.subject.runner.ask("cubins", {}, self.limits.call, max_raw=MAX_ARTEFACTS)
            report.build.resources += resources_of_cubins(frame.message.get("index"), frame.raw, self.device)

    def _evidence(self, trials: Trials, program_ms: float) -> tuple[Evidence, Observed]:
        assert self.tournament is not None and self.tournament.timed is not None and self.made is not None
        trials.make_room(ended=True)
        fresh: list[Party] = []

        def another() -> Party:
            fresh.append(self.pool.take("runner", self.job.precision, self.job.mode))
            return fresh[-1]

        rng = random.Random(secrets.randbits(64))  # not drawn from the evaluation's seed, which would otherwise reveal what is inspected
        observation = Observation(
            timed=self.tournament.timed, trials=trials, source=self.program.source, artefacts=self.made.artefacts, fresh=another,
            enlist=self._variant, folder=data_folder(self.data_dir, "shim"), call_ms=program_ms, rng=rng, form=self.tournament.form,
        )  # fmt: skip
        try:
            return observation.look()
        finally:
            for runner in fresh:
                self.pool.dismiss(runner)

    def _progress(self, detail: str, stage: str = "correctness") -> None:
        self.on_stage(StageEvent(stage=stage, status="progress", detail=detail))

    def _drop_runner(self) -> None:
        if self.runner is not None:
            self.pool.give_back(self.runner)
            self.runner = None
