"""A realistic run, appended through the real append function, for developing and testing the live page without a verifier.

`python tests/browser/sample_run.py --user NAME --delay 0.2` plays a run back on the installation in DATA_DIR. Tests call `play`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.browser.sample_program import BODIES, TASK, program  # noqa: E402

POLICY = "coder (/models/coder@3f2a1c9d04be-40)"
OUTCOMES = [("wrong_result", 0.0), ("passed", 1.18), ("passed", 1.96), ("passed", 2.41)]
HOSTILE = '<img src=x onerror="document.title=1"><script>document.title="owned"</script>'


def report(task_sha: str, program_sha: str, status: str, ratio: float, tier: str, seed: int) -> dict:
    """Returns a report that the contract accepts, with samples whose blocks vary as they do in real reports."""
    rng = random.Random(seed)
    eager, stages = 9.84, [("static", "passed", 0.02, ""), ("build", "passed", 1.31, "g++ -O3 -march=native -fopenmp")]
    base = {
        "task": task_sha, "program": program_sha, "tier": tier, "precision": "fp32-strict", "mode": "train", "status": status,
        "environment": {"device": "cpu", "device_name": "AMD EPYC 9654 96-Core Processor", "device_model": "cpu-x86_64-2c", "torch": "2.13.0",
                        "python": "3.11.7", "compiler": "g++ 12.2.0", "threads": 2},
        "protection": {"sandbox": "bubblewrap", "layers": ["network namespace", "seccomp", "rlimits"], "missing": ["cgroup v2: not delegated here"]},
        "weights": "loaded",
        "build": {"seconds": 1.31, "cached": False, "compiler_output": "kernel.cpp:14:9: note: loop vectorized using 32 byte vectors",
                  "resources": [{"function": "softmax_rows", "bytes": 2184}]},
        "findings": [{"rule": "static.ctypes", "severity": "note", "message": "the program loads a library that it built", "line": 31}],
        "reasons": {"peak_bytes": "not measured on this device", "throttled": "the CPU device has no throttle counter"},
    }  # fmt: skip
    trials = [
        {"name": name, "seed": seed + i, "ok": True, "output": "out", "error": 1.2e-7 * (i + 1), "bound": 1.5e-6, "norm": "max |a-b| / rms(b)"}
        for i, name in enumerate(["task inputs 1", "task inputs 2", "negative", "heavy-tailed", "tiny", "large", "timed call 17"])
    ]
    if status != "passed":
        trials[3] |= {"ok": False, "error": 0.83, "detail": "out[17, 4096] is nan where 0.00012 was expected"}
        stages.append(("correctness", "failed", 0.9, "1 of 7 calls wrong"))
        message = "wrong on heavy-tailed inputs: out[17, 4096] is nan where 0.00012 was expected; exp overflows without subtracting the largest"
        return base | {"message": message, "trials": trials, "stages": _stages(stages)}
    stages += [
        ("correctness", "passed", 0.9, "7 calls"),
        ("integrity", "passed", 0.4, "97 % in own functions"),
        ("timing", "passed", 4.2, "24 blocks"),
    ]
    comparisons = []
    for baseline, factor in [("eager", 1.0)] + ([("compile", 1.82)] if tier == "full" else []):
        blocks = [rng.gauss(1.0, 0.012) for _ in range(24)]
        against = ratio / factor
        comparisons.append({
            "baseline": baseline, "speedup": {"ratio": against, "low": against * 0.985, "high": against * 1.016},
            "program_ms": eager / ratio, "baseline_ms": eager / factor, "blocks": 24,
            "program_samples_ms": [[eager / ratio * b * rng.gauss(1, 0.004) for _ in range(4)] for b in blocks],
            "baseline_samples_ms": [[eager / factor * rng.gauss(1, 0.008) for _ in range(4)] for _ in blocks],
        })  # fmt: skip
    return base | {
        "stages": _stages(stages), "trials": trials, "seed": seed, "faster": ratio > 1, "own_share": 0.97, "program_class": "custom",
        "floor_ms": 3.2, "floor_fraction": 3.2 / (eager / ratio),
        "timing": {
            "program_ms": eager / ratio,
            "bounded": False,
            "clock_agrees": True,
            "clock": 2,
            "lead_in": 2,
            "counted": 6,
            "round_trip_ms": 0.031,
            "preempted": 0.01,
            "by_judge": {"ratio": ratio * 0.998, "low": ratio * 0.97, "high": ratio * 1.02},
            "comparisons": comparisons,
        },
        "kernels": [
            {"name": "softmax_rows", "calls": 1, "ms": eager / ratio * 0.97, "share": 0.97, "own": True},
            {"name": "aten::empty_like", "calls": 1, "ms": eager / ratio * 0.03, "share": 0.03, "own": False},
        ],
    }  # fmt: skip


def _stages(rows: list[tuple]) -> list[dict]:
    return [{"name": name, "status": status, "seconds": seconds, "detail": detail} for name, status, seconds, detail in rows]


def timeline(events: int = 4000, seed: int = 1, launches: int = 6) -> bytes:
    """Returns a GPU timeline with API calls that launch kernels on two streams, and NVTX ranges around iterations."""
    from verifier.profiling.timeline import Row, Timeline

    rng = np.random.default_rng(seed)
    calls = max(1, events // 2)
    length = rng.choice([1800.0, 5200.0, 14000.0, 41000.0], calls) * rng.uniform(0.9, 1.1, calls)
    begin = np.cumsum(length + rng.exponential(2500.0, calls)) - length
    names = ["softmax_kernel<float, 4>(float const*, float*, long)", "ampere_sgemm_128x64_tn", "void at::native::vectorized_elementwise_kernel<4>",
             "[memcpy HtoD]", "cudaLaunchKernel", "iter"]  # fmt: skip
    which = rng.choice(4, calls, p=[0.4, 0.25, 0.3, 0.05])
    iterations = max(1, calls // (launches * 4))
    edges = np.linspace(0, calls - 1, iterations + 1).astype(int)
    columns = {
        "start": np.concatenate([begin, np.maximum(0, begin - rng.uniform(3000, 9000, calls)), begin[edges[:-1]]]),
        "duration": np.concatenate([length, np.full(calls, 1400.0), np.maximum(1.0, begin[edges[1:]] - begin[edges[:-1]] - 500)]),
        "name": np.concatenate([which, np.full(calls, 4), np.full(iterations, 5)]),
        "row": np.concatenate([(rng.random(calls) < 0.02).astype(int), np.full(calls, 2), np.full(iterations, 3)]),
        "kind": np.concatenate([np.where(which == 3, 1, 0), np.full(calls, 4), np.full(iterations, 5)]),
        "correlation": np.concatenate([np.arange(1, calls + 1), np.arange(1, calls + 1), np.zeros(iterations)]),
        "depth": np.zeros(calls * 2 + iterations),
        "detail": np.concatenate([(which == 0).astype(int), np.zeros(calls + iterations)]),
    }
    rows = [
        Row("Stream 7", "gpu", "NVIDIA H200"),
        Row("Stream 13", "gpu", "NVIDIA H200"),
        Row("CUDA API", "api", "Thread 1"),
        Row("NVTX", "nvtx", "Thread 1"),
    ]
    details = [{"grid": [1024, 1, 1], "block": [256, 1, 1], "registers": 40, "shared_bytes": 4096}]
    columns = {name: np.asarray(column) for name, column in columns.items()}
    return Timeline("nsys", "NVIDIA H200", rows, names, columns, details=details).to_bytes()


def real_timeline(path: Path) -> bytes:
    """Returns the importer's result for a real Nsight Systems export."""
    from verifier.profiling.nsight.nsys_import import import_nsys

    return import_nsys(path)[0].to_bytes()


def create_run(user, title: str = "softmax_rows"):
    from verifier.source import sha256
    from webapp.runs.models import Run
    from webapp.tasks.models import Task

    team = user.personal_team
    task, _ = Task.objects.get_or_create(team=team, sha=sha256(TASK), defaults={"name": "softmax", "source": TASK})
    return Run.objects.create(team=team, task=task, title=title, workflow="stitch", device_kind="cpu", precision="fp32-strict", created_by=user)


def story(run, *, candidates: int = 4, timeline_bytes: bytes | None = None, chatter: int = 0) -> Iterator[list]:
    """Yields batches of `NewEvent` as the engine would append them."""
    from agents.events import NewEvent
    from verifier.source import sha256
    from webapp.runs import artefacts

    def event(kind: str, span: str = "", agent: str = "engine", **payload):
        return NewEvent(kind=kind, span=span, agent=agent, payload=payload)

    def stored(data: bytes | str, media_type: str, name: str) -> dict:
        return artefacts.put(run.team_id, data.encode() if isinstance(data, str) else data, media_type, name).model_dump()

    def said(span: str, agent: str, message: str, text: str) -> Iterator[list]:
        for start in range(0, len(text), 48):
            yield [event("message.delta", span, agent, message=message, offset=start, text=text[start : start + 48])]
        yield [event("message.completed", span, agent, message=message, text=text)]

    def job(span: str, kind: str, number: int | None, names: list[str], **finished) -> Iterator[list]:
        key = f"{span}#{kind}-{finished.get('tier', 0)}"
        request = stored(json.dumps({"kind": kind, "key": key}), "application/json", "job.json")
        yield [
            event(
                "verification.queued",
                span,
                "verifier",
                key=key,
                job=kind,
                candidate=number,
                verification=str(uuid.uuid4()),
                tier=finished.get("tier"),
                request=request,
            )
        ]
        for name in names:
            yield [event("verification.stage", span, "verifier", key=key, stage=name, status="started")]
            failed = name == "correctness" and finished.get("status") == "wrong_result"
            yield [event("verification.stage", span, "verifier", key=key, stage=name, status="failed" if failed else "passed", seconds=0.4)]
            if failed:
                break
        yield [event("verification.finished", span, "verifier", key=key, job=kind, candidate=number, **finished)]

    def measured(span: str, number: int, source: str, status: str, ratio: float, tier: str) -> Iterator[list]:
        body = report(sha256(TASK), sha256(source), status, ratio, tier, seed=number * 100 + (tier == "full"))
        comparison = body.get("timing", {}).get("comparisons", [{}])[0]
        told = {
            "status": status,
            "message": body.get("message", ""),
            "tier": tier,
            "speedup": comparison.get("speedup"),
            "faster": body.get("faster", False),
        }
        told |= {"program_class": body.get("program_class"), "program_ms": comparison.get("program_ms")}
        told["result"] = stored(json.dumps({"report": body}), "application/json", "report.json")
        yield from job(span, "verify", number, ["static", "build", "correctness", "integrity", "timing"], **told)

    drawn = timeline_bytes or timeline()
    reference = stored(timeline(seed=2, launches=3), "application/x-stitchwork-timeline", "reference.stwtl")
    limits = {"candidates": 8, "verifier_seconds": 600.0, "seconds": 1800.0, "calls": None, "tokens": None, "dollars": None}
    source_ref = stored(TASK, "text/x-python", "task.py")
    yield [event("run.started", task={"sha": run.task.sha, "name": run.task.name}, workflow="stitch", planner="built-in", coder="built-in",
                 device="cpu", precision="fp32-strict", mode="train", target=None, budget=limits, seed=7, source=source_ref)]  # fmt: skip
    yield [event("span.opened", "admit", title="Admit the task")]
    yield from job("admit", "admit", None, ["static", "admit"], ok=True, flags=[])
    yield [event("span.closed", "admit", status="ok", seconds=1.4, summary="sound")]
    yield [event("span.opened", "reference", "verifier", title="Profile the reference")]
    yield from job("reference", "profile", None, ["profile"], timeline=reference)
    yield [event("profile.attached", "reference", "verifier", candidate=None, tool="nsys", timeline=reference)]
    yield [event("span.closed", "reference", "verifier", status="ok", seconds=2.2, summary="9840 us a call")]
    yield [event("span.opened", "plan", "planner", title="Plan")]
    yield from said(
        "plan",
        "planner",
        "plan#1",
        "The task is one softmax over rows of 8192 floats: 64 MiB read and written at least. It is bound by memory. " + HOSTILE,
    )
    steps = [
        {"id": "g1", "title": "softmax over rows", "operators": ["aten._softmax.default"], "space": "own kernel",
         "strategies": ["row-reduction", "online"], "contract": "x: [1024, 8192] float32, contiguous", "expected": 2.1, "risk": "exp accuracy",
         "reason": "one pass less over the row than ATen"},
        {"id": "g2", "title": "allocation of the result", "operators": ["aten.empty_like"], "space": "pytorch", "strategies": [], "contract": "",
         "expected": "", "risk": "", "reason": "the allocator is already cached"},
    ]  # fmt: skip
    yield [
        event("plan.proposed", "plan", "planner", summary="One fused kernel; nothing else is worth a kernel of its own.", steps=steps, floor_ms=3.2)
    ]
    yield [event("span.closed", "plan", "planner", status="ok", seconds=0.8, summary="2 groups")]
    decided = None
    for index in range(candidates):
        number, source = index + 1, program(index)
        status, ratio = OUTCOMES[index % len(OUTCOMES)]
        ratio = ratio * (1 + 0.04 * (index // len(OUTCOMES)))
        step, span = f"step-{number}", f"step-{number}/attempt-1"
        yield [event("span.opened", step, "coder", title="Write the program" if index == 0 else "Answer the diagnosis: vectorise")]
        yield [event("span.opened", span, "coder", title=f"Candidate {number}")]
        note = BODIES[index % len(BODIES)][0]
        text = f"Candidate {number}: {note}.\n\n```cpp\n{BODIES[index % len(BODIES)][1]}\n```\n\nThe rest stays as it was."
        yield from said(
            span, "coder", f"{span}#1", text + ("\n" + "\n".join(f"line {i} of a long explanation" for i in range(40)) if index == 2 else "")
        )
        ref = stored(source, "text/x-python", f"candidate-{number}.py")
        by = {"author": POLICY} if number == 4 else {}
        yield [event("candidate.proposed", span, "coder", candidate=number, parent=index or None, title=note, step="g1", program=ref, sha=ref["sha"],
                     changes=f"Changed the middle loop: {note}.", strategy="row-reduction", **by)]  # fmt: skip
        yield from measured(span, number, source, status, ratio, "quick")
        if status == "passed":
            attach = stored(drawn if index % 2 else timeline(seed=number + 3), "application/x-stitchwork-timeline", f"candidate-{number}.stwtl")
            yield [event("profile.attached", span, "verifier", candidate=number, tool="nsys", timeline=attach)]
        if decided:
            yield [event("decision.made", span, of=decided, route="optimise", reason="", expected=1.3, realised=ratio)]
        evidence = [
            {"figure": "bandwidth used", "value": 61.3, "unit": "%", "means": "64 MiB must move in a call at the least; the device sustains 21 GB/s"},
            {"figure": "time", "value": 9840 / max(ratio, 1), "unit": "us", "means": "median of one call"},
        ]
        bottleneck = "memory" if status == "passed" else "defect"
        last = index == candidates - 1
        told = "The row is read twice." if status == "passed" else "exp overflows: the largest value has to be subtracted first."
        yield [event("diagnosis.made", span, "verifier", candidate=number, bottleneck="none" if last else bottleneck, headroom=1.3, evidence=evidence,
                     method=None if last else "vectorise", text="No applicable optimization left; stopped early." if last else told)]  # fmt: skip
        route = "stop" if last else "optimise" if status == "passed" else "repair"
        reason = "Within 5 % of the floor." if last else "The diagnosis allows one more method."
        yield [event("decision.made", span, "verifier", route=route, reason=reason, expected=None if last else 1.3)]
        decided = "last"
        yield [event("span.closed", span, "coder", status="ok" if status == "passed" else "failed", seconds=6.4, summary=status)]
        yield [event("span.closed", step, "coder", status="ok" if status == "passed" else "failed", seconds=6.6, summary=status)]
        spent = {"candidates": number, "verifier_seconds": 7.1 * number, "seconds": 9.0 * number, "calls": 0, "tokens": 0, "dollars": 0.0}
        yield [event("budget.updated", spent=spent, limits=limits)]
        for i in range(chatter):
            yield [event("note.added", span, "person", text=f"note {i} on candidate {number}", by="alice", to="coder")]
    best = max((c for c in range(candidates) if OUTCOMES[c % 4][0] == "passed"), default=None)
    if best is None:
        yield [event("run.finished", outcome="failed", reason="no program passed", best=None, speedup=None)]
        return
    ratio = OUTCOMES[best % 4][1] * (1 + 0.04 * (best // 4)) * 0.99
    yield [event("span.opened", "confirm", "verifier", title="Confirm the winner on fresh seeds")]
    yield from measured("confirm", best + 1, program(best), "passed", ratio, "full")
    yield [event("span.closed", "confirm", "verifier", status="ok", seconds=11.0, summary="2.39x")]
    reason = f"candidate {best + 1} is faster: 2.39x eager on fresh seeds. The diagnosis says that nothing is left within 5 % of the floor."
    speedup = {"ratio": ratio, "low": ratio * 0.985, "high": ratio * 1.016}
    yield [event("run.finished", outcome="improved", reason=reason, best=best + 1, speedup=speedup)]


def play(run, *, delay: float = 0.0, stop_after: int | None = None, **options) -> int:
    """Appends the scripted events and returns the last seq. `stop_after` cuts them off partway, as a crash would. Without a delay, many events are
    combined into one append."""
    from webapp.runs.trace.append import append

    run.refresh_from_db()
    seq, decided, waiting = run.last_seq, None, []
    for batch in story(run, **options):
        for event in batch:
            seq += 1
            if event.payload.get("of") == "last":
                event.payload["of"] = decided
            elif event.kind == "decision.made":
                decided = seq
        waiting += batch
        ended = stop_after is not None and seq >= stop_after
        if delay or ended or len(waiting) >= 40:
            append(run.pk, waiting)
            waiting = []
            time.sleep(delay)
        if ended:
            break
    if waiting:
        append(run.pk, waiting)
    return seq


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--user", default="")
    parser.add_argument("--delay", type=float, default=0.1)
    parser.add_argument("--candidates", type=int, default=4)
    parser.add_argument("--chatter", type=int, default=0, help="notes a candidate, for long traces")
    parser.add_argument("--stop-after", type=int)
    parser.add_argument("--nsys", type=Path, help="SQLite export of Nsight Systems to draw")
    parser.add_argument("--events", type=int, help="events of a synthetic timeline")
    options = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")
    import django

    django.setup()
    from webapp.accounts.models import User

    user = User.objects.get(username=options.user) if options.user else User.objects.order_by("pk").first()
    run = create_run(user)
    print(run.pk, flush=True)
    drawn = real_timeline(options.nsys) if options.nsys else timeline(options.events) if options.events else None
    print(play(run, delay=options.delay, stop_after=options.stop_after, candidates=options.candidates, chatter=options.chatter, timeline_bytes=drawn))


if __name__ == "__main__":
    main()
