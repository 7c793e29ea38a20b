"""The winners of a sweep through KernelBench's own evaluation (`bench/kernelbench_eval.py`): the ten, and others drawn. One process a device, or
several, of which each compiles while others compute: then KernelBench's own times say nothing, and are not kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from bench.sweep.store import Store, slug
from bench.sweep.tasks import ROOT, items, to_accept


def accept(store: Store, checkout: Path, devices: Sequence[str], limit_seconds: float | None, share: int = 1) -> list[str]:
    """Asks about what has not been asked of the present programs, by `share` processes a device. Returns the keys that are left."""
    solved = [key for key, row in store.rows.items() if row["solved"]]
    known = store.content.get("acceptance", {})
    waiting = [key for key in to_accept(solved) if known.get(key, {}).get("program") != store.rows[key].get("program") or key not in known]
    paths = {item.key: item.path for item in items(["level1", "level2", "level3"], checkout)} if waiting else {}
    places = [(device, number) for number in range(share) for device in devices]
    threads = [
        threading.Thread(target=evaluate, args=(store, checkout, *place, {key: paths[key] for key in own}, limit_seconds, share == 1))
        for at, place in enumerate(places)
        if (own := waiting[at :: len(places)])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    known = store.content.get("acceptance", {})
    return [key for key in waiting if known.get(key, {}).get("program") != store.rows[key].get("program")]


def evaluate(store: Store, checkout: Path, device: str, number: int, tasks: dict[str, Path], limit_seconds: float | None, alone: bool) -> None:
    """One process for all of them, since each start costs seconds; what it has written when the time is up counts."""
    name = f"acceptance-{device.replace(':', '-')}{f'-{number}' if number else ''}"
    result = store.work / f"{name}.json"
    result.unlink(missing_ok=True)
    pairs = [f"{path}={store.programs / slug(key)}.py" for key, path in tasks.items()]
    command = [sys.executable, str(ROOT / "bench/kernelbench_eval.py"), "--kernelbench", str(checkout), "--out", str(result), *pairs]
    visible = {**os.environ, "CUDA_VISIBLE_DEVICES": device.partition(":")[2] or "0"}
    with (store.work / f"{name}.log").open("w") as log:
        try:
            subprocess.run(command, env=visible, stdout=log, stderr=subprocess.STDOUT, timeout=limit_seconds)
        except subprocess.TimeoutExpired:
            print(f"{device}: the time for KernelBench's own evaluation is up", flush=True)
    verdicts = {verdict["task"]: verdict for verdict in json.loads(result.read_text())["results"]} if result.exists() else {}
    for key, path in tasks.items():
        verdict = verdicts.get(path.stem)
        if verdict is not None:
            said = "; ".join(f"{name}: {text}" for name, text in verdict["metadata"].items() if "error" in name or "issue" in name)[:300]
            kept = {name: verdict[name] for name in ("compiled", "correct", *(("runtime_ms", "reference_runtime_ms") if alone else ()))}
            store.accepted(key, {**kept, "said": said or ("" if verdict["compiled"] else "not compiled")})
            print(f"{key}: {'accepted' if verdict['correct'] else 'NOT accepted'} by KernelBench's own evaluation. {said}", flush=True)
