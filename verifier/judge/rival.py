"""The other program of a job.

It goes through the same stages before it runs. If it does not pass them, or fails in a call, there is no verdict on the program.
"""

from __future__ import annotations

from verifier.build.building import BuildFailed, Building
from verifier.build.headers import Headers
from verifier.build.late import Built
from verifier.build.store import Store
from verifier.integrity.static import inspect_source
from verifier.judge.endings import Ended
from verifier.judge.pool import Pool
from verifier.program import Program
from verifier.report import Report
from verifier.source import SourceError, parse


def ready_rival(source: str, report: Report, pool: Pool, store: Store, headers: Headers | None) -> Built:
    """Reads, inspects and builds the other program, and records its name in `report`. Raises `Ended`."""
    try:
        tree = parse(source)
        program = Program.read(source)
    except SourceError as error:
        raise Ended("inconclusive", f"the program that it is timed against cannot be read: {error}") from None
    report.rival = program.sha
    refused = [finding for finding in inspect_source(tree, program.source) if finding.severity == "refuse"]
    if refused and not report.without_static:
        raise Ended("inconclusive", f"the program that it is timed against is refused: line {refused[0].line}: {refused[0].message}")
    building = Building(pool, store, program, headers)
    try:
        return Built(pool, store, headers, program, building.result()[0])
    except BuildFailed as failed:
        raise Ended("inconclusive", f"the program that it is timed against does not build: {failed.message}") from None
    finally:
        building.close()
