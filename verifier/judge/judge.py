"""Runs jobs for a client. It assigns parties to jobs and keeps control of the verdict and the clock; `serving.py` and `single.py` drive it.

It imports no task and no program, and it unpickles nothing. When its client disconnects, or the judge is killed, nothing that it started survives.
"""

from __future__ import annotations

import contextlib
import secrets
import traceback
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from verifier.build.headers import Headers
from verifier.channel import Frame
from verifier.confinement.probe import NoSandbox
from verifier.confinement.spawned import SURVIVAL, survivors
from verifier.devices.base import DeviceError
from verifier.jobs import AdmitJob, CalibrateJob, CaptureJob, Job, JobResult, ProfileJob, SanitizeJob, StageEvent, VerifyJob
from verifier.judge.admission import admit, task_failure
from verifier.judge.capturing import CaptureBroken, Captures
from verifier.judge.endings import TaskUnusable
from verifier.judge.evaluation import Evaluation
from verifier.judge.foreseeing import Foreseen
from verifier.judge.inbox import Inbox
from verifier.judge.opening import Opening
from verifier.judge.party_failure import PartyFailure
from verifier.judge.pool import Cancelled, Pool
from verifier.judge.session import ReferenceSession
from verifier.layout import LayoutError
from verifier.source import SourceError, sha256
from verifier.startup import bytecode
from verifier.task import Admission, Task

# Imports within functions: a judge starts sooner without what only jobs of one kind need.
JOB: TypeAdapter[Job] = TypeAdapter(Job)


class Judge:
    """Runs the jobs of one device, one at a time."""

    def __init__(self, data_dir: Path, inbox: Inbox, pool: Pool, headers: Headers, without_static: bool = False, opening: Opening | None = None):
        """Sets up the judge. `opening` is the work that was started in advance for its only job."""
        self.device = pool.device
        self.data_dir = data_dir
        self.inbox = inbox
        self.limits = pool.limits
        self.without_static = without_static
        self.headers = headers
        self.pool = pool
        self.opening = opening
        self.captures = Captures(data_dir)
        self.session: ReferenceSession | None = None
        self.session_key: tuple[str, ...] = ()
        self.foreseen: Foreseen | None = None  # the process of the capture that follows the last admission
        pool.gate.called_off = lambda: pool.cancelled
        if self.device.kind == "cuda":
            pool.gate.begin(pool.freezable, self.device.rests)

    def ready(self, reached: dict[str, float]) -> None:
        """Sends the client the device's description and its measured rates."""
        ceiling = self.device.ceiling("fp32-strict")
        figures = {"bandwidth_gbs": (ceiling.bytes_per_second or 0) / 1e9, "fp32_gflops": (ceiling.flops_per_second or 0) / 1e9, **reached}
        self.inbox.send({"type": "ready", "environment": self.device.environment().model_dump(), "figures": figures})

    def result(self, frame: Frame) -> JobResult:
        """Runs the job that the inbox returned last."""
        with self.pool.gate.working():
            return self._job(frame)

    def answer(self, frame: Frame, result: JobResult) -> bool:
        """Sends the result. Returns False, without sending anything, if the client has withdrawn the job."""
        if self.inbox.done():
            self.end_session()
            self.inbox.send({"type": "cancelled", "id": frame.integer("id")})
            return False
        answer = {"type": "result", "id": frame.integer("id"), "result": result.model_dump(mode="json")}
        self.inbox.send(answer, result.timeline or b"")
        return True

    # Jobs

    def _job(self, frame: Frame) -> JobResult:
        number = frame.integer("id")

        def on_stage(event: StageEvent) -> None:
            self.inbox.send({"type": "stage", "id": number, "event": event.model_dump()})

        try:
            job = JOB.validate_python(frame.message.get("job"))
            if self.device.kind == "cpu":
                self.headers.wait()  # otherwise a running compiler would disturb the measurement
                bytecode.wait(lambda: self.pool.cancelled)
            if self.pool.cancelled:  # cancelled while it was waiting for its turn
                raise Cancelled
            unusable = self._survivors() or self.device.check()
            if unusable:
                return JobResult(error=unusable)
            return self._run(job, on_stage)
        except ValidationError as error:
            return JobResult(error=f"the job is malformed: {error.errors()[0]['msg']}")
        except Cancelled:
            return JobResult(error="cancelled")
        except (DeviceError, CaptureBroken, NoSandbox) as error:
            self.end_session()
            return JobResult(error=str(error))
        except Exception as error:  # the next job must be able to run
            self.end_session()
            traceback.print_exc()
            return JobResult(error=f"the verifier failed: {type(error).__name__}: {error}")

    def _run(self, job: Job, on_stage: Any) -> JobResult:
        foreseen, self.foreseen = self.foreseen, None
        if foreseen is not None:
            foreseen.use_for(job)
        if isinstance(job, AdmitJob):
            on_stage(StageEvent(stage="admit", status="started"))
            return JobResult(admission=self._admit(job))
        if isinstance(job, CaptureJob):
            on_stage(StageEvent(stage="capture", status="started"))
            return self._capture(job)
        if isinstance(job, VerifyJob):
            evaluation = Evaluation(job, self.pool, self.data_dir, self._session, on_stage, self.without_static, self.headers, self.opening)
            try:
                return JobResult(report=evaluation.run())
            except TaskUnusable as error:
                self.end_session()
                return JobResult(error=str(error))
            finally:
                if self.session is not None and not self.session.usable:
                    self.end_session()
        if isinstance(job, CalibrateJob):
            on_stage(StageEvent(stage="calibrate", status="started"))
            return self._calibrate(job, on_stage)
        if isinstance(job, SanitizeJob):
            from verifier.profiling.sanitizing.sanitize import sanitize_job

            return JobResult(sanitized=sanitize_job(job, self.pool, self.data_dir, on_stage))
        return self._profile(job, on_stage)

    def _admit(self, job: AdmitJob) -> Admission:
        seed = secrets.randbits(32)
        if not job.capture_follows or self.captures.known(sha256(job.task_source), job.mode, job.precision) is not None:
            return admit(job, self.pool, seed)
        foreseen = Foreseen(self.pool, job)
        try:
            admission = admit(job, self.pool, seed, foreseen)
            if admission.ok:
                foreseen.admitted()
                self.foreseen = foreseen
            return admission
        finally:
            if self.foreseen is None:
                foreseen.end()

    def _calibrate(self, job: CalibrateJob, on_stage: Any) -> JobResult:
        from verifier.timing.calibrate import calibrate

        self.end_session()
        try:
            return JobResult(calibration=calibrate(job, self.pool, self.data_dir, on_stage).model_dump())
        except PartyFailure as failure:
            return JobResult(error=f"the calibration failed: {failure.message}")

    def _capture(self, job: CaptureJob) -> JobResult:
        try:
            task = Task.read(job.task_source)
            known = self.captures.known(task.sha, job.mode, job.precision)
            return JobResult(capture=known or self.captures.take(self._session(job), task.sha, job.mode, secrets.randbits(32)))
        except SourceError as error:
            return JobResult(error=f"the task cannot be used: {error}")
        except PartyFailure as failure:
            self.end_session()
            return JobResult(error=task_failure(failure))
        except LayoutError as error:
            return JobResult(error=f"the task cannot be used: {error}")

    def _profile(self, job: ProfileJob, on_stage: Any) -> JobResult:
        from verifier.profiling.job import profile_job

        profile, timeline = profile_job(job, self.pool, self.data_dir, on_stage)
        return JobResult(profile=profile, timeline=timeline)

    def _survivors(self) -> str:
        """Explains that the device cannot be trusted if processes of an earlier job do not die; otherwise, returns an empty string."""
        alive = survivors()
        if not alive:
            return ""
        return (
            f"{self.device.name} cannot be used: {len(alive)} processes of an earlier job still exist {SURVIVAL:g} s after SIGKILL (pids "
            f"{', '.join(map(str, alive[:5]))}), held by a driver; if they remain, reset the GPU or restart the host"
        )

    # The reference is kept for the next evaluation of the same task

    def _session(self, job: Any) -> ReferenceSession:
        key = (sha256(job.task_source), job.precision, job.mode)
        if self.session is not None and (self.session_key != key or not self.session.usable):
            self.end_session()
        if self.session is None:
            self.session = ReferenceSession(self.pool, job.task_source, job.precision, job.mode)
            self.session_key = key
        return self.session

    def end_session(self) -> None:
        if self.session is not None:
            self.session.close()
            self.session = None
        if self.foreseen is not None:
            self.foreseen.end()
            self.foreseen = None

    def close(self) -> None:
        self.pool.gate.end()
        self.pool.close()
        self.end_session()
        with contextlib.suppress(RuntimeError):  # raised by a device that failed
            self.device.close()
