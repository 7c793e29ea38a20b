"""Runs the winners of a sweep through KernelBench's own evaluation (`bench/kernelbench_eval.py`): those of the ten tasks, and a random sample.

There is one process per device, or several that compile while others compute. In the second case, KernelBench's own times are meaningless and are
not kept.

A rejected program is tried once more without TF32 (`exact`). KernelBench's tolerance for fp32 is 1e-4, but its reference is PyTorch with default
settings, whose convolutions and recurrences compute in TF32 and have larger errors than that.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.sweep.store import Store, slug
from bench.sweep.tasks import ROOT, items, to_accept

EXACT = {"NVIDIA_TF32_OVERRIDE": "0"}  # read by cuBLAS and cuDNN


def accept(store: Store, checkout: Path, devices: Sequence[str], limit_seconds: float | None, share: int = 1) -> list[str]:
    """Evaluates the current programs that have no verdict yet, in `share` processes per device. Returns the remaining keys."""
    solved = [key for key, row in store.rows.items() if row["solved"]]
    wanted = to_accept(solved)
    paths = {item.key: item.path for item in items(["level1", "level2", "level3"], checkout)} if wanted else {}
    begun = time.monotonic()

    def ask(keys: list[str], exact: bool) -> None:
        left = None if limit_seconds is None else limit_seconds - (time.monotonic() - begun)
        if left is not None and left <= 0:
            return
        places = [(device, number) for number in range(share) for device in devices]
        threads = [
            threading.Thread(target=evaluate, args=(store, checkout, *place, {key: paths[key] for key in own}, left, share == 1, exact))
            for at, place in enumerate(places)
            if (own := keys[at :: len(places)])
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    ask([key for key in wanted if verdict_of(store, key) is None], exact=False)
    ask([key for key in wanted if (verdict := verdict_of(store, key)) and not verdict["correct"] and "exact" not in verdict], exact=True)
    return [key for key in wanted if (verdict := verdict_of(store, key)) is None or not (verdict["correct"] or "exact" in verdict)]


def verdict_of(store: Store, key: str) -> dict[str, Any] | None:
    """Returns the verdict on the current version of the program."""
    verdict = store.content.get("acceptance", {}).get(key)
    return verdict if verdict is not None and verdict.get("program") == store.rows[key].get("program") else None


def evaluate(
    store: Store, checkout: Path, device: str, number: int, tasks: dict[str, Path], limit_seconds: float | None, alone: bool, exact: bool = False
) -> None:
    """Evaluates all of them in one process, because each start takes seconds. Results written before the time is up count."""
    name = f"acceptance-{device.replace(':', '-')}{f'-{number}' if number else ''}{'-exact' if exact else ''}"
    result = store.work / f"{name}.json"
    result.unlink(missing_ok=True)
    pairs = [f"{path}={store.programs / slug(key)}.py" for key, path in tasks.items()]
    command = [sys.executable, str(ROOT / "bench/kernelbench_eval.py"), "--kernelbench", str(checkout), "--out", str(result), *pairs]
    visible = {**os.environ, "CUDA_VISIBLE_DEVICES": device.partition(":")[2] or "0", **(EXACT if exact else {})}
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
            differs = {name: verdict["metadata"][name] for name in ("max_difference", "avg_difference") if name in verdict["metadata"]}
            timed = ("runtime_ms", "reference_runtime_ms") if alone and not exact else ()
            kept = {name: verdict[name] for name in ("compiled", "correct", *timed)}
            kept |= {"said": said or ("" if verdict["compiled"] else "not compiled"), **differs}
            store.accepted(key, {**(verdict_of(store, key) or {}), "exact": kept} if exact else kept)
            how = " without TF32" if exact else ""
            print(f"{key}: {'accepted' if verdict['correct'] else 'NOT accepted'} by KernelBench's own evaluation{how}. {said}", flush=True)
