"""Downloads a run: best program, report, and the whole trace in the form that `manage.py import_trace` reads. Existing files are not downloaded
again."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stitchwork.api import Api, ApiError

TRACE, ARTEFACTS, BEST, TASK, REPORT, SUMMARY = "trace.jsonl", "artefacts", "best.py", "task.py", "report.json", "run.json"
PAGE = 1000
SHA = re.compile(r"[0-9a-f]{64}")


class Damaged(Exception):
    """Raised if downloaded content does not match its name."""


def fetch(api: Api, run: str, folder: Path, *, trace: bool = True, say: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """Writes the run into `folder`. Returns what was written, keyed by name. A repeated call continues where the previous one stopped."""
    detail = api.get(f"/runs/{run}")
    folder.mkdir(parents=True, exist_ok=True)
    written: dict[str, Any] = {"run": detail["id"], "folder": str(folder), "state": detail["state"], "outcome": detail["outcome"]}
    _write_json(folder / SUMMARY, detail)
    (folder / TASK).write_bytes(api.content(f"/runs/{run}/task"))
    if detail["best_candidate"] is not None:
        (folder / BEST).write_bytes(api.content(f"/runs/{run}/best"))
        written["best"] = str(folder / BEST)
    report = _report(api, run, detail)
    if report is not None:
        _write_json(folder / REPORT, report)
        written["report"] = str(folder / REPORT)
    if trace:
        written["events"] = _fetch_events(api, run, folder, say)
        written["artefacts"] = _fetch_artefacts(api, run, folder, say)
    return written


def _report(api: Api, run: str, detail: dict[str, Any]) -> dict[str, Any] | None:
    """Returns the report of the best candidate or, if none passed, of the last one that was judged."""
    number = detail["best_candidate"]
    if number is None:
        judged = [c["number"] for c in api.get(f"/runs/{run}/candidates")["candidates"] if c["verification"] and c["verification"]["status"]]
        if not judged:
            return None
        number = judged[-1]
    try:
        return api.get(f"/runs/{run}/candidates/{number}/report")
    except ApiError as error:
        if error.status == 404:
            return None
        raise


def _fetch_events(api: Api, run: str, folder: Path, say: Callable[[str], None]) -> int:
    path = folder / TRACE
    last = _last_seq(path, run)
    with path.open("ab") as file:
        while True:
            answer = api.get(f"/runs/{run}/events", after=last, limit=PAGE)
            for event in answer["events"]:
                file.write(json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")
            file.flush()
            last = int(answer["last"])
            say(f"{last} of {answer['head']} events")
            if last >= answer["head"]:
                return last


def _last_seq(path: Path, run: str) -> int:
    """Returns the seq of the last event in the file, and removes an incomplete last line."""
    if not path.exists():
        return 0
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        path.write_bytes(whole)
    lines = whole.splitlines()
    if not lines:
        return 0
    last = json.loads(lines[-1])
    if last["run"] != run or last["seq"] != len(lines):
        raise Damaged(f"{path} holds another trace: choose another folder with --out")
    return len(lines)


def _fetch_artefacts(api: Api, run: str, folder: Path, say: Callable[[str], None]) -> int:
    (folder / ARTEFACTS).mkdir(exist_ok=True)
    rows = api.get(f"/runs/{run}/artefacts")["artefacts"]
    for index, row in enumerate(rows, 1):
        sha = row["sha"]
        if not SHA.fullmatch(sha):
            raise Damaged(f"{sha!r} is no hash")
        path = folder / ARTEFACTS / sha
        if path.exists() and path.stat().st_size == row["bytes"]:
            continue
        data = api.content(f"/runs/{run}/artefacts/{sha}")
        if hashlib.sha256(data).hexdigest() != sha:
            raise Damaged(f"artefact {sha} was damaged in transit: try again")
        draft = path.with_suffix(".part")
        draft.write_bytes(data)
        draft.replace(path)
        say(f"{index} of {len(rows)} artefacts")
    return len(rows)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n")
