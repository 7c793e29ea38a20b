"""The judge: one trusted process a device. It takes jobs from its client, lends them to confined parties and keeps verdict and clock to itself.

It imports no task and no program, and it unpickles nothing. When its client goes, or it is killed, nothing that it started stays.
"""

from __future__ import annotations

import contextlib
import gc
import os
import queue
import secrets
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from verifier.build.headers import Headers
from verifier.channel import Channel, ChannelError, Frame
from verifier.confinement.spawned import SURVIVAL, survivors
from verifier.devices.base import DeviceError
from verifier.jobs import AdmitJob, CalibrateJob, CaptureJob, Job, JobResult, ProfileJob, SanitizeJob, StageEvent, VerifyJob
from verifier.judge.admission import admit, task_failure
from verifier.judge.capturing import CaptureBroken, Captures
from verifier.judge.endings import TaskUnusable
from verifier.judge.evaluation import Evaluation
from verifier.judge.opening import Opening
from verifier.judge.party_failure import PartyFailure
from verifier.judge.pool import Cancelled, Pool, Role
from verifier.judge.session import ReferenceSession
from verifier.layout import LayoutError
from verifier.source import SourceError, sha256
from verifier.startup import bytecode
from verifier.task import Task

JOB: TypeAdapter[Job] = TypeAdapter(Job)
SESSION_BYTES = 8 << 30  # of device memory that a waiting reference may hold: context, task, cached blocks
LEAK_BYTES, FIRST_BYTES = 512 << 20, 2 << 30  # of device memory; the judge itself loads kernels and libraries with its first jobs
GIVEN_BACK_SECONDS = 10.0


class Judge:
    def __init__(self, data_dir: Path, channel: Channel, pool: Pool, headers: Headers, without_static: bool = False, opening: Opening | None = None):
        """With an `opening` there is one job, which it holds."""
        self.device = pool.device
        self.data_dir = data_dir
        self.channel = channel
        self.limits = pool.limits
        self.without_static = without_static
        self.headers = headers
        self.pool = pool
        self.opening = opening
        self.captures = Captures(data_dir)
        self.inbox: queue.Queue[Frame | None] = queue.Queue()
        self.session: ReferenceSession | None = None
        self.session_key: tuple[str, ...] = ()
        self.free_at_rest: int | None = None  # bytes of device memory when no party held any
        self.settled = False  # the judge has loaded its own kernels and libraries, which stay
        self.observer: tuple[Role, str, str] | None = None  # terms of the process that should wait for the next program of the same kind
        self.current: int | None = None
        self.lock = threading.Lock()

    def serve(self) -> None:
        """Until the client goes."""
        reached: dict[str, float] = {}
        if self.opening is not None:
            self.inbox.put(self.opening.frame)
        threading.Thread(target=self._read, daemon=True).start()
        self.pool.gate.called_off = lambda: self.pool.cancelled
        if self.device.kind == "cuda":
            self.pool.gate.begin(self.pool.freezable, self.device.rests)
        if self.opening is None:
            if self.device.rehearsal is not None:
                self.device.rehearsal.join()
            with self.pool.gate.alone():
                reached = self.device.reached()
            self.free_at_rest = self.device.free_bytes()
            self.pool.refill()
        ceiling = self.device.ceiling("fp32-strict")
        figures = {"bandwidth_gbs": (ceiling.bytes_per_second or 0) / 1e9, "fp32_gflops": (ceiling.flops_per_second or 0) / 1e9, **reached}
        self._send({"type": "ready", "environment": self.device.environment().model_dump(), "figures": figures})
        while True:
            frame = self.inbox.get()
            if frame is None:
                break
            number = frame.integer("id")
            with self.lock:
                if frame.message.get("cancelled"):
                    continue
                self.current, self.pool.cancelled = number, False
            self.observer = None
            with self.pool.gate.working():
                result = self._job(frame)
            if self.opening is None:
                self.pool.forget()
                self.pool.reap()
            leaked = self._leaked() if self.opening is None else ""
            if leaked and result.report is not None:
                result.report.reasons["gpu_memory"] = leaked
            with self.lock:
                self.current = None
                cancelled = self.pool.cancelled
            if cancelled:
                self._end_session()
                self._send({"type": "cancelled", "id": number})
            else:
                self._send({"type": "result", "id": number, "result": result.model_dump(mode="json")}, result.timeline or b"")
            if self.opening is not None:
                self.device.rest()
                break
            if self.device.lost:
                break  # the client starts another judge, with a context of its own
            if self.observer is not None and self.inbox.empty() and not cancelled:
                self.pool.anticipate([self.observer])
            self.pool.refill()
            if self.inbox.empty() and not cancelled:
                self.headers.begin(self.pool)
                bytecode.begin(self.data_dir)
                self.device.rest()
        self.close()

    def _read(self) -> None:
        """The client's frames, in a thread of their own, so that a cancel reaches a job at work and a lost client ends everything."""
        waiting: dict[int, Frame] = {self.opening.frame.integer("id"): self.opening.frame} if self.opening is not None else {}
        while True:
            try:
                frame = self.channel.receive(None)
            except ChannelError:
                self.inbox.put(None)
                self.pool.cancel()
                # Confined processes die with this one; a job that does not notice must not keep it.
                threading.Timer(5, os._exit, [1]).start()
                return
            number = frame.integer("id")
            if frame.text("type") == "cancel":
                with self.lock:
                    if self.current == number:
                        self.pool.cancel()
                    elif number in waiting:
                        waiting[number].message["cancelled"] = True
            else:
                waiting = {number: frame}
                self.inbox.put(frame)

    def _send(self, message: dict[str, Any], raw: bytes = b"") -> None:
        try:
            self.channel.send(message, raw)
        except ChannelError:
            pass  # the reading thread has seen it as well

    # Jobs

    def _job(self, frame: Frame) -> JobResult:
        number = frame.integer("id")

        def on_stage(event: StageEvent) -> None:
            self._send({"type": "stage", "id": number, "event": event.model_dump()})

        try:
            job = JOB.validate_python(frame.message.get("job"))
            if self.device.kind == "cpu":
                self.headers.wait()  # a compiler at work would be measured
                bytecode.wait(lambda: self.pool.cancelled)
            if self.pool.cancelled:  # while it waited for its turn
                raise Cancelled
            unusable = self._survivors() or self.device.check()
            if unusable:
                return JobResult(error=unusable)
            return self._run(job, on_stage)
        except ValidationError as error:
            return JobResult(error=f"the job is malformed: {error.errors()[0]['msg']}")
        except Cancelled:
            return JobResult(error="cancelled")
        except (DeviceError, CaptureBroken) as error:
            self._end_session()
            return JobResult(error=str(error))
        except Exception as error:  # the next job must run
            self._end_session()
            traceback.print_exc()
            return JobResult(error=f"the verifier failed: {type(error).__name__}: {error}")

    def _run(self, job: Job, on_stage: Any) -> JobResult:
        if isinstance(job, AdmitJob):
            on_stage(StageEvent(stage="admit", status="started"))
            return JobResult(admission=admit(job, self.pool, secrets.randbits(32)))
        if isinstance(job, CaptureJob):
            on_stage(StageEvent(stage="capture", status="started"))
            return self._capture(job)
        if isinstance(job, VerifyJob):
            evaluation = Evaluation(job, self.pool, self.data_dir, self._session, on_stage, self.without_static, self.headers, self.opening)
            try:
                self.observer = evaluation.observer_terms(job) if evaluation.apart else None
                return JobResult(report=evaluation.run())
            except TaskUnusable as error:
                self._end_session()
                return JobResult(error=str(error))
            finally:
                if self.session is not None and not self.session.party.alive:
                    self._end_session()
        if isinstance(job, CalibrateJob):
            on_stage(StageEvent(stage="calibrate", status="started"))
            return self._calibrate(job, on_stage)
        if isinstance(job, SanitizeJob):
            from verifier.profiling.sanitizing.sanitize import sanitize_job

            return JobResult(sanitized=sanitize_job(job, self.pool, self.data_dir, on_stage))
        return self._profile(job, on_stage)

    def _calibrate(self, job: CalibrateJob, on_stage: Any) -> JobResult:
        from verifier.timing.calibrate import calibrate

        self._end_session()
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
            self._end_session()
            return JobResult(error=task_failure(failure))
        except LayoutError as error:
            return JobResult(error=f"the task cannot be used: {error}")

    def _profile(self, job: ProfileJob, on_stage: Any) -> JobResult:
        from verifier.profiling.job import profile_job

        profile, timeline = profile_job(job, self.pool, self.data_dir, on_stage)
        return JobResult(profile=profile, timeline=timeline)

    # The state of the device between jobs

    def _survivors(self) -> str:
        """Empty, or why the device cannot be trusted: something of an earlier job does not die."""
        alive = survivors()
        if not alive:
            return ""
        return (
            f"{self.device.name} cannot be used: {len(alive)} processes of an earlier job are still there {SURVIVAL:g} s after SIGKILL (pids "
            f"{', '.join(map(str, alive[:5]))}), held by a driver; where they stay, reset the GPU or restart the host"
        )

    def _leaked(self) -> str:
        """Empty, or how much device memory a job did not give back. The parties of a job are dead by now, except the reference, which stays for the
        next one: where much is missing, it is ended too, and the device looked at again."""
        before = self.free_at_rest
        free = self.device.free_bytes()
        try:
            shared = self.pool.gate.others()
        except DeviceError:  # the next job says why
            shared = True
        if before is None or free is None or shared:  # whose memory it is cannot be told
            return ""
        if free < before - SESSION_BYTES:
            self._end_session()
            gc.collect()  # tensors that an exception's frames still hold
        if self.session is not None:
            return ""
        deadline = time.monotonic() + GIVEN_BACK_SECONDS
        while free is not None and free < before - LEAK_BYTES and time.monotonic() < deadline:
            gc.collect()
            time.sleep(0.1)  # the driver frees what a killed process held a moment after its end
            free = self.device.free_bytes()
        if free is None or free >= before - LEAK_BYTES:
            self.settled = True
            return ""
        first, self.free_at_rest, self.settled = not self.settled, free, True  # said once
        if first and before - free < FIRST_BYTES:
            return ""
        return f"{(before - free) / 2**30:.2f} GiB of GPU memory were not given back in {GIVEN_BACK_SECONDS:g} s, or another process has taken them"

    # The reference stays for the next evaluation of the same task

    def _session(self, job: Any) -> ReferenceSession:
        key = (sha256(job.task_source), job.precision, job.mode)
        if self.session is not None and (self.session_key != key or not self.session.party.alive):
            self._end_session()
        if self.session is None:
            self.session = ReferenceSession(self.pool, job.task_source, job.precision, job.mode)
            self.session_key = key
        return self.session

    def _end_session(self) -> None:
        if self.session is not None:
            self.session.close()
            self.session = None

    def close(self) -> None:
        self.pool.gate.end()
        self.pool.close()
        self._end_session()
        with contextlib.suppress(RuntimeError):  # of a device that failed
            self.device.close()
