"""The job `verify`: one program against one task, stage by stage, ending in a report."""

from __future__ import annotations

import ast
import contextlib
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from verifier.admission import task_failure
from verifier.build.store import Artefacts, Store, checked_index, compiler_problems, trimmed
from verifier.channel import MAX_ARTEFACTS
from verifier.devices.base import DeviceError
from verifier.integrity.static import inspect_source
from verifier.jobs import StageEvent, VerifyJob
from verifier.layout import LayoutError
from verifier.pool import Party, PartyFailure, Pool, data_folder
from verifier.profiling.own_kernels import classified
from verifier.program import Program
from verifier.report import BuildInfo, Finding, Report, Stage, Status
from verifier.roofline import floor_ms
from verifier.sandbox import protection
from verifier.session import ReferenceSession
from verifier.source import SourceError, parse
from verifier.task import Task
from verifier.tournament import Tournament
from verifier.trials import Subject, Trials, Verdict

OnStage = Callable[[StageEvent], None]


class TaskUnusable(Exception):
    """The task, not the program, is why there is no verdict."""


class Ended(Exception):
    """A stage ended the evaluation with a verdict."""

    def __init__(self, status: Status, message: str):
        super().__init__(message)
        self.status = status
        self.message = message


class Evaluation:
    """Holds what stages hand to each other. `sessions` lends a reference that may already know the task."""

    def __init__(
        self,
        job: VerifyJob,
        pool: Pool,
        data_dir: Path,
        session: Callable[[VerifyJob], ReferenceSession],
        on_stage: OnStage,
        without_static: bool = False,
    ):
        self.job = job
        self.pool = pool
        self.device = pool.device
        self.limits = pool.limits
        self.session_for = session
        self.on_stage = on_stage
        self.data_dir = data_dir
        environment = self.device.environment()
        self.store = Store(data_folder(data_dir, "builds"), environment.compiler, environment.torch, environment.device_model, environment.cuda or "")
        self.seed = job.seed if job.seed is not None else secrets.randbits(48)
        self.report = Report(
            task="",
            program="",
            tier=job.tier,
            precision=job.precision,
            mode=job.mode,
            status="infrastructure_error",
            environment=environment,
            protection=protection(),
            seed=self.seed,
            without_static=without_static,
        )
        self.runner: Party | None = None

    def run(self) -> Report:
        """Raises `TaskUnusable`, and `Cancelled` where the client took the job back; every fault of the program is a report."""
        report = self.report
        try:
            self.task = Task.read(self.job.task_source)
        except SourceError as error:
            raise TaskUnusable(f"the task cannot be used: {error}") from None
        report.task = self.task.sha
        try:
            self._stages()
            report.status = "passed"
        except Ended as ended:
            report.status, report.message = ended.status, ended.message
        except PartyFailure as failure:
            report.status, report.message = self._verdict(failure)
        except DeviceError as error:
            report.status, report.message = "infrastructure_error", str(error)
        except LayoutError as error:
            report.status, report.message = "crashed", f"the program's answer cannot be used: {error}"
        finally:
            self._drop_runner()
        if report.status != "passed":
            report.timing, report.faster = None, False
            report.reasons.setdefault("timing", "performance exists only on a program that passed")
        self._reasons()
        return report

    def built(self) -> Artefacts:
        """Only the stages `static` and `build`, for a job that times nothing. Raises `Ended` where the program does not get past them."""
        with self._stage("static"):
            self._static()
        with self._stage("build"):
            return self._build()

    def _stages(self) -> None:
        with self._stage("static") as stage:
            self._static()
            if self.report.without_static:
                stage.status, stage.detail = "skipped", "switched off for a test: this report is no result"
        with self._stage("build") as stage:
            artefacts = self._build()
            assert self.report.build is not None
            stage.detail = "cached" if self.report.build.cached else ""
        with self._stage("correctness") as stage:
            trials = self._correct(artefacts)
            stage.detail = f"{sum(trial.ok for trial in self.report.trials)} of {len(self.report.trials)} trials"
        with self._stage("timing") as stage:
            self._time(trials, artefacts)
            speedup = self.report.speedup
            stage.detail = f"{speedup.ratio:.2f}x eager [{speedup.low:.2f}, {speedup.high:.2f}]" if speedup else ""
        with self._stage("integrity") as stage:
            self._observe(trials)
            stage.detail = self.report.program_class or ""

    @contextlib.contextmanager
    def _stage(self, name: str) -> Iterator[Stage]:
        begin = time.monotonic()
        stage = Stage(name=name, status="passed", seconds=0)  # type: ignore[arg-type]
        self.on_stage(StageEvent(stage=name, status="started"))
        try:
            yield stage
        except BaseException as error:
            stage.status = "failed"
            stage.detail = getattr(error, "message", str(error)).split("\n")[0][:300]
            raise
        finally:
            stage.seconds = round(time.monotonic() - begin, 4)
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

    def _build(self) -> Artefacts:
        report = self.report
        known = self.store.get(self.program.sha)
        if known is not None:
            report.build = BuildInfo(seconds=known.seconds, cached=True)
            return known
        missing = self.device.missing_compiler()
        builder = self.pool.take("builder")
        try:
            request = {"source": self.program.source, "variables": self.device.variables("builder")}
            frame = builder.ask("build", request, self.limits.build, max_raw=MAX_ARTEFACTS)
        except PartyFailure as failure:
            raise Ended("timed_out" if failure.kind == "timed_out" else "crashed", f"while the program was built, {failure.message}") from None
        finally:
            printed = builder.spawned.text()
            self.pool.give_back(builder)
        failure = frame.message.get("failure")
        try:
            index = checked_index(frame.message.get("artefacts"), len(frame.raw))
        except ValueError as error:
            raise Ended("crashed", str(error)) from None
        seconds = frame.message.get("seconds")
        artefacts = Artefacts(index, frame.raw, round(float(seconds), 3) if isinstance(seconds, (int, float)) else 0.0)
        report.build = BuildInfo(seconds=artefacts.seconds, cached=False)
        if isinstance(failure, dict) and not _needs_gpu(failure, self.device.kind):
            self._build_failed(failure, printed, missing)
        self.store.put(self.program.sha, artefacts)
        return artefacts

    def _build_failed(self, failure: dict, printed: str, missing: str) -> None:
        text = str(failure.get("message", ""))
        line = failure.get("line") if isinstance(failure.get("line"), int) else None
        compiling = "failed:\n" in text or "Error building extension" in text or failure.get("class") in ("CalledProcessError", "FileNotFoundError")
        if compiling and missing and ("FileNotFoundError" in str(failure.get("class")) or "No such file" in text):
            raise Ended("infrastructure_error", missing)
        assert self.report.build is not None
        output = trimmed(text if "error" in text.lower() else text + "\n" + printed) if compiling else text
        self.report.build.compiler_output = output
        self.report.problems = compiler_problems(output, self.program.source) if compiling else []
        first = self.report.problems[0] if self.report.problems else None
        if compiling:
            where = f"line {first.line or line}: " if first and (first.line or line) else f"line {line}: " if line else ""
            raise Ended("build_failed", f"{where}{first.message if first else output.splitlines()[0] if output else 'the compiler failed'}")
        where = f"line {line}: " if line else ""
        raise Ended("build_failed", f"the program cannot be imported: {where}{failure.get('class')}: {text[:400]}")

    def _correct(self, artefacts: Artefacts) -> Trials:
        report = self.report
        try:
            reference = self.session_for(self.job)
            trials = Trials(reference, self.seed, full=self.job.tier == "full", on_progress=self._progress)
            trials.prepare()
        except PartyFailure as failure:
            raise TaskUnusable(task_failure(failure)) from None
        except LayoutError as error:
            raise TaskUnusable(f"the task cannot be used: {error}") from None
        self.artefacts = artefacts
        for attempt in (1, 2):
            try:
                verdict: Verdict = trials.run(self._subject(artefacts))
                break
            except PartyFailure as failure:
                # A first crash is not yet the program's: the same again in a fresh process.
                if failure.kind != "crashed" or attempt == 2:
                    report.trials = trials.done
                    raise
                report.findings.append(Finding(rule="crash", severity="note", message=f"the first runner died: {failure.message}", source="runtime"))
                self._drop_runner()
        report.trials, report.weights = trials.done, verdict.weights
        report.flags = verdict.flags
        report.findings += verdict.findings
        if verdict.wrong:
            raise Ended("wrong_result", verdict.wrong)
        return trials

    def _subject(self, artefacts: Artefacts) -> Subject:
        """A fresh runner with the program imported."""
        self._drop_runner()
        runner = self.pool.take("runner", self.job.precision, self.job.mode)
        self.runner = runner
        message = {"source": self.program.source, "artefacts": artefacts.index, "variables": self.device.variables("device")}
        runner.ask("import", message, self.limits.load, raw=artefacts.data)
        return Subject(runner)

    def _time(self, trials: Trials, artefacts: Artefacts) -> None:
        report = self.report
        tournament = Tournament(self.pool, trials, self.job, self.seed)
        try:
            for attempt in (1, 2):
                assert trials.subject is not None
                timing, problem = tournament.run(trials.subject)
                report.trials += tournament.failed
                if tournament.failed:
                    raise Ended("wrong_result", f"{tournament.failed[0].name}: {tournament.failed[0].detail or 'the output is off'}")
                if problem:
                    report.findings.append(Finding(rule="clock", severity="downgrade", message=problem, source="runtime"))
                    if attempt == 2:
                        raise Ended("inconclusive", problem)
                elif not tournament.suspicious(timing) or attempt == 2:
                    break
                else:
                    message = f"{timing.comparisons[0].speedup.ratio:.1f}x eager: measured again in a fresh process"
                    report.findings.append(Finding(rule="fast", severity="note", message=message, source="runtime"))
                trials.reconstruct(self._subject(artefacts))
            report.trials += tournament.checked
            if tournament.wide:
                raise Ended("inconclusive", tournament.wide)
            report.timing = timing
            eager = report.timing.comparisons[0].speedup
            report.faster = eager.low > 1 and not report.without_static
            report.reasons.update(tournament.reasons)
            report.peak_bytes = trials.peak_bytes()
            report.floor_ms, reason = floor_ms(self.device, trials.bytes_moved(), self._flops(), self.job.precision)
            if report.floor_ms is not None:
                report.floor_fraction = report.floor_ms / timing.program_ms if timing.program_ms else None
            if reason:
                report.reasons["floor_ms"] = reason
        finally:
            tournament.close()

    def _flops(self) -> int | None:
        from verifier.capturing import known_capture

        capture = known_capture(self.data_dir, self.task.sha, self.job.mode)
        return capture.flops if capture else None

    def _observe(self, trials: Trials) -> None:
        report = self.report
        try:
            seen = trials.observe()
        except PartyFailure as failure:
            report.reasons["own_share"] = f"the observed call failed: {failure.message.splitlines()[0] if failure.message else failure.kind}"
            return
        if self.device.kind == "cuda" and seen.kernels:
            # A runner says which kernels ran; which of them are the program's own is decided here, from its source.
            seen.kernels, seen.own_share = classified(seen.kernels, self.job.program_source)
        report.kernels = seen.kernels
        report.own_share = seen.own_share
        if seen.own_share is None:
            report.reasons["own_share"] = seen.reason or "the profiler gave no figure"
            return
        report.program_class = "custom" if seen.own_share >= 0.5 else "mixed" if seen.own_share >= 0.1 else "orchestration"
        if seen.threads_left > 0:
            message = f"{seen.threads_left} threads of the program were still there after forward had returned"
            report.findings.append(Finding(rule="threads", severity="note", message=message, source="runtime"))

    # Verdicts

    def _verdict(self, failure: PartyFailure) -> tuple[Status, str]:
        """What a runner's failure says about the program."""
        where = f"line {failure.line}: " if failure.line else ""
        if failure.request in ("start", "role"):
            return "infrastructure_error", f"a confined process could not be started: {failure.message} {failure.detail[-500:]}".strip()
        if failure.kind == "raised":
            if "was not built beforehand" in failure.message:
                return "build_failed", f"{where}{failure.message}"
            step = {"import": "imported", "construct": "constructed"}.get(failure.request, "called")
            return "crashed", f"{where}{failure.error_class} when the program was {step}: {failure.message[:600]}"
        if failure.kind == "timed_out":
            return "timed_out", f"{where}{failure.message}"
        return "crashed", f"{where}{failure.message}"

    def _progress(self, detail: str) -> None:
        self.on_stage(StageEvent(stage="correctness", status="progress", detail=detail))

    def _reasons(self) -> None:
        report = self.report
        for name in ("timing", "own_share", "program_class", "floor_ms", "floor_fraction", "peak_bytes", "build", "weights"):
            if getattr(report, name) is None:
                report.reasons.setdefault(name, report.reasons.get("own_share", "") if name == "program_class" else "the evaluation ended before")

    def _drop_runner(self) -> None:
        if self.runner is not None:
            self.pool.give_back(self.runner)
            self.runner = None


def _needs_gpu(failure: dict, kind: str) -> bool:
    """The builder has no GPU; a program that touches one while it is imported is judged in the runner."""
    text = f"{failure.get('class')}: {failure.get('message')}"
    return kind == "cuda" and any(
        phrase in text for phrase in ("No CUDA GPUs", "NVIDIA driver", "CUDA driver", "libcuda", "CUDA error", "0 active drivers")
    )
