"""A function that returns one verdict, for scripts, notebooks and training loops: `from verifier import check`."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from verifier.client import Verifier
from verifier.jobs import JobResult, StageEvent, VerifyJob
from verifier.report import Report, Tier
from verifier.startup.starting import start_job
from verifier.task import Mode, Precision


class CannotCheck(RuntimeError):
    """Raised when the host cannot verify or the task is unusable. In this case, nothing is known about the program. The message says what to install,
    free or change."""


def check(
    task: str | Path,
    program: str | Path,
    *,
    device: str = "cpu",
    tier: Tier = "quick",
    precision: Precision = "fp32-strict",
    mode: Mode = "train",
    backward: bool = False,
    seed: int | None = None,
    data_dir: str | Path | None = None,
    on_stage: Callable[[StageEvent], None] | None = None,
) -> Report:
    """Verifies and measures `program` (a source that defines `ModelNew`) against `task` (in KernelBench's format). Each of them is either source text
    or a file path.

    If the program is wrong, slow or hostile, the report says so: see `report.status`, `report.faster` and `report.against("eager")`. Raises
    `CannotCheck`, or `OSError` if a file cannot be read. `data_dir` is the folder for built libraries and for the host's calibration data (default:
    `default_data_dir()`). It can be called from inside a running event loop, but it blocks that loop. To check many programs, keep one
    `verifier.client.Verifier`.
    """
    begun = time.monotonic()
    job = VerifyJob(
        task_source=_source(task), program_source=_source(program), tier=tier, precision=precision, mode=mode, backward=backward, seed=seed
    )
    folder = Path(data_dir) if data_dir is not None else default_data_dir()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # The job runs in a separate thread because the caller might be in an event loop. A judge dies with the thread that started it.
    with ThreadPoolExecutor(1) as threads:
        result = threads.submit(asyncio.run, _run(job, device, folder, begun, on_stage)).result()
    if result.report is None:
        raise CannotCheck(result.error)
    return result.report


def default_data_dir() -> Path:
    """Returns `$DATA_DIR/verifier` if `DATA_DIR` is set; otherwise, returns a folder in the user's cache."""
    if "DATA_DIR" in os.environ:
        return Path(os.environ["DATA_DIR"]) / "verifier"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stitchwork" / "verifier"


def _source(given: str | Path) -> str:
    """Returns source text unchanged, or reads it from a path. A string counts as a path if it is a single line that ends in .py; a `Path` object
    always does."""
    if isinstance(given, Path) or ("\n" not in given and given.endswith(".py")):
        return Path(given).read_text(encoding="utf-8")
    return given


async def _run(job: VerifyJob, device: str, folder: Path, begun: float, on_stage: Callable[[StageEvent], None] | None) -> JobResult:
    verifier = Verifier(device, folder, started=start_job(job.model_dump(mode="json"), device, folder, begun))
    try:
        return await verifier.run(job, on_stage)
    finally:
        await verifier.close()
