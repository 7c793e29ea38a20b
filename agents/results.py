"""Writes a finished run's files next to its trace, for people and scripts: reports, the best program, and a summary."""

from __future__ import annotations

import json
from pathlib import Path

from agents.journal import ARTEFACTS
from agents.projection import Summary
from verifier.jobs import JobResult

REPORTS = "reports"
BEST = "best.py"
SUMMARY = "summary.json"


def write_results(folder: Path, summary: Summary) -> None:
    """Writes `reports/` (one JSON file per verification of a program), `best.py` (if a program passed) and `summary.json`. All of them can be
    regenerated."""
    (folder / REPORTS).mkdir(exist_ok=True)
    for index, row in enumerate(summary.verifications, start=1):
        if row.job != "verify" or row.result is None:
            continue
        result = JobResult.model_validate_json((folder / ARTEFACTS / row.result.sha).read_bytes())
        content = result.report.model_dump(mode="json") if result.report else {"error": result.error}
        name = f"{index:02d}-candidate-{row.candidate}-{row.tier or 'none'}.json"
        (folder / REPORTS / name).write_text(json.dumps(content, indent=1) + "\n")
    best = summary.best_candidate()
    if best is not None and best.program is not None and best.status == "passed":
        (folder / BEST).write_bytes((folder / ARTEFACTS / best.program.sha).read_bytes())
    (folder / SUMMARY).write_text(summary.model_dump_json(indent=1, exclude={"queued_at"}) + "\n")
