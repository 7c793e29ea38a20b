"""Writes the experiment's data on a CPU: short synthetic tasks, and programs of several qualities for them from the built-in compiler.

    python -m bench.rl_arms.corpus --out DIR --count 4000 --held-out 64 --against CHECKOUT bench/everyday

`held-out.jsonl` has one task per line, and so has `practice.jsonl`, for reinforcement. `pairs.jsonl` has one task and program per line, for
supervision: tuned, slow, wrong or cheat. The labels follow from the way in which a program was made; nothing is executed here. No other task has the
same structure as a held-out task or is similar to one. The same command continues.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import sys
import types
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from agents.rl.data.leaks import Index, structures, tasks_below
from agents.rl.data.making import Lines
from agents.rl.data.operators import ROWS, TOKENS
from agents.rl.data.qualities import Written, cheat, honest, wrong_program, wrong_task
from agents.rl.data.structure import structure
from agents.rl.data.synthetic import Chain, drawn

SEED = 35
LONGEST = 4  # operators, the last one included
PART = 50  # tasks for each process: torch.export keeps memory of each
EVERY_WRONG, EVERY_CHEAT = 3, 8  # one in so many tasks gets a wrong program, or a cheat (about 5 % of the rows)


def short(chain: Chain) -> bool:
    """Returns whether the task belongs to the experiment, that is, has few operators on rows or tokens and no matrix product."""
    return chain.start in (ROWS, TOKENS) and len(chain.steps) <= LONGEST and "product" not in chain.families


def tasks(count: int, held_out: int, practice: int, against: dict[str, str]) -> tuple[list[int], list[int], list[int]]:
    """Returns the draws of the tasks for supervision, for reinforcement, and for holding out."""
    benchmarks, unread = structures(against)
    if unread:
        raise ValueError(f"{unread[0]} cannot be read as Python")
    known, number = Index(benchmarks), 0
    apart: dict[str, Any] = {}
    held: list[int] = []
    while len(held) < held_out:
        chain = drawn(SEED, number)
        if short(chain):
            found = structure(chain.source())
            if found.key not in {one.key for one in apart.values()} and next(known.alike(found), None) is None:
                apart[f"held-out {number}"] = found
                held.append(number)
        number += 1
    index, keys, train = Index({**benchmarks, **apart}), {one.key for one in apart.values()}, []
    while len(train) < count + practice:
        chain = drawn(SEED, number)
        if short(chain):
            found = structure(chain.source())
            if found.key not in keys and next(index.alike(found), None) is None:
                train.append(number)
        number += 1
    return train[:count], train[count:], held


def programs(number: int) -> list[dict[str, Any]]:
    """Returns a task's programs."""
    from compiler import DeviceFigures

    chain, rng = drawn(SEED, number), random.Random(f"{SEED}:{number}")
    source = chain.source()
    captured = captured_of(source)
    found: list[Written] = honest(source, captured, DeviceFigures.h200(), rng) if captured is not None else []
    if found and rng.randrange(EVERY_WRONG) == 0:
        other = wrong_task(chain, rng)
        captured = captured_of(other)
        mistaken = wrong_program(other, captured, DeviceFigures.h200()) if captured is not None else None
        found += [mistaken] if mistaken is not None else []
    if rng.randrange(EVERY_CHEAT) == 0:
        found.append(cheat(source, rng))
    return [{"number": number, "quality": one.quality, "how": one.how, "task": source, "program": one.source} for one in found]


def captured_of(source: str) -> Any:
    from verifier.parties.capturing.capture import capture

    module = types.ModuleType("task")
    exec(compile(source, "task.py", "exec"), module.__dict__)  # our own generator's text
    made = capture(module.Model(*module.get_init_inputs()), module.get_inputs(), source, "train")
    return made if made.graph is not None else None


def part(numbers: list[int], path: str) -> None:
    import torch

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with Path(path).open("ab", buffering=0) as file:
        for number in numbers:
            lines = [*programs(number), {"done": number}]
            file.write("".join(json.dumps(line) + "\n" for line in lines).encode())  # in one call, because workers share the file


def parts(numbers: list[int]) -> Iterator[list[int]]:
    for at in range(0, len(numbers), PART):
        yield numbers[at : at + PART]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--count", type=int, default=4000, help="tasks with programs")
    parser.add_argument("--practice", type=int, default=512, help="tasks for reinforcement, without programs")
    parser.add_argument("--held-out", type=int, default=64, help="held-out tasks")
    parser.add_argument("--against", type=Path, nargs="+", default=[], metavar="PATH", help="benchmarks that no task may be like")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="processes at a time, each with one thread")
    args = parser.parse_args()
    train, practice, held = tasks(args.count, args.held_out, args.practice, tasks_below(args.against))
    args.out.mkdir(parents=True, exist_ok=True)
    for name, numbers in (("held-out", held), ("practice", practice)):
        lines = [{"number": number, "task": drawn(SEED, number).source(), "name": drawn(SEED, number).name} for number in numbers]
        (args.out / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    path = args.out / "pairs.jsonl"
    done = {line["done"] for line in Lines(path) if "done" in line}
    due = [number for number in train if number not in done]
    print(f"{len(train)} training tasks, {len(held)} held out; {len(done)} are done", file=sys.stderr)

    def made(some: list[int]) -> tuple[int, int]:
        worker = multiprocessing.get_context("spawn").Process(target=part, args=(some, str(path)))
        worker.start()
        worker.join()
        return len(some), worker.exitcode or 0

    count = len(done)
    with ThreadPoolExecutor(args.workers) as pool:
        for call in as_completed([pool.submit(made, some) for some in parts(due)]):
            size, code = call.result()
            if code != 0:
                print(f"a worker ended with {code}: run the command again", file=sys.stderr)
                pool.shutdown(cancel_futures=True)
                return 1
            count += size
            print(f"{count} of {len(train)}", file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
