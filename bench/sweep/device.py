"""The process for one device. It keeps a verifier warm and solves tasks from standard input one at a time, as `agents solve` does.

An input line is `{"key", "path", "precision", "folder"}`; an output line is `{"key", "row"}`, or `{"key", "interrupted": true}` after SIGTERM. The
first output line, `{"ready": ...}`, describes the device. After `{"unusable": why}`, the process ends.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from agents import cli
from bench.sweep.rows import failed, row_of
from verifier.client import Verifier
from verifier.limits import Limits

GIB = 1 << 30
# KernelBench's inputs are up to 6 GB, its slowest fp64 run takes a minute, and the full tier needs nine concurrent processes. The measurements
# themselves are unchanged.
SPARES = {"cuda": 9, "cpu": 3}
LIMITS = {"load": 60, "inputs": 60, "call": 40, "oracle": 120, "admission": 150, "capture": 150, "temporary": 4 * GIB}


def limits(arguments: argparse.Namespace) -> Limits:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    most = max(8 * GIB, min(64 * GIB, memory // 2))
    return Limits(**LIMITS, memory=most, full_timing=arguments.timing_seconds, autotune=arguments.autotune_seconds)


async def serve(arguments: argparse.Namespace, given: list[str]) -> None:
    loop, me = asyncio.get_running_loop(), asyncio.current_task()
    arguments.data_dir.mkdir(parents=True, exist_ok=True)
    client = Verifier(arguments.device, arguments.data_dir, limits(arguments), spares=arguments.spares)
    loop.add_signal_handler(signal.SIGTERM, me.cancel)
    reader = asyncio.StreamReader(limit=1 << 20)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    try:
        try:
            environment = await client.ready()
        except OSError as error:
            say(unusable=str(error))
            return
        say(ready={**environment.model_dump(exclude={"device"}), "figures": await client.figures()})
        while line := await reader.readline():
            await one(json.loads(line), client, given, arguments.timing_seconds)
    finally:
        with contextlib.suppress(asyncio.CancelledError):
            await client.close()


async def one(order: dict[str, Any], client: Verifier, given: list[str], timing_seconds: float) -> None:
    folder, path = Path(order["folder"]), Path(order["path"])
    solve = ["solve", str(path), "--out", str(folder), "--device", client.device, "--precision", order["precision"], "--resume", "--quiet"]
    try:
        await cli.solve_one(cli.parser().parse_args([*solve, *given]), path, path.stem, folder, client)
        row = row_of(folder) | {"timing_seconds": timing_seconds}
    except asyncio.CancelledError:
        say(key=order["key"], interrupted=True)
        raise
    except Exception as error:  # the next task must still run
        traceback.print_exc()
        row = failed(f"{type(error).__name__}: {error}", 0.0)
        shutil.rmtree(folder, ignore_errors=True)
    say(key=order["key"], row=row)


def say(**message: Any) -> None:
    print(json.dumps(message), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", required=True)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--spares", type=int)
    parser.add_argument("--timing-seconds", type=float, default=Limits().full_timing)
    parser.add_argument("--autotune-seconds", type=float, default=Limits().autotune)
    arguments, given = parser.parse_known_args()  # the remaining arguments are for `agents solve`
    arguments.spares = SPARES[arguments.device.partition(":")[0]] if arguments.spares is None else arguments.spares
    with contextlib.suppress(asyncio.CancelledError, KeyboardInterrupt):
        asyncio.run(serve(arguments, given))
    return 0


if __name__ == "__main__":
    sys.exit(main())
