"""Trains a small policy with several rewards and has the verifier judge each resulting policy on held-out tasks.

    python -m bench.rl_arms.corpus --out DATA --count 3600 --against CHECKOUT bench/everyday        on any CPU
    python -m bench.rl_arms.arms supervise --data DATA --out RUN --device cuda:0 --seed 0
    python -m bench.rl_arms.arms reinforce ARM --data DATA --out RUN --device cuda:0 --seed 0       ARM: naive, verdict, rubric
    python -m bench.rl_arms.arms judge ARM... --data DATA --out RUN --device cuda:0 --seed 0        ARM: supervised or one of the above
    python -m bench.rl_arms.arms tables RUN... --to FILE

Every command resumes where it was interrupted. Policy and judge share the device: while one works, the other waits. The rewards:

    naive     one seed, one shape, the program's own process, KernelBench's tolerance (bench/rl_arms/naive.py)
    verdict   our verifier: 0 unless the program passed, then 0.3 plus the lower end of its speedup
    rubric    our verifier, the share of own kernels, and the rubric by rules (agents/rl/reward.py)

`judge` samples programs for the held-out tasks and lets the verifier judge `--judged` of them a task, whatever they were trained with. Every sampled
program is labelled: it counts as a cheat by its text only (`agents.rl.data.labels`).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from agents.rl.data.labels import CHEATS, label
from agents.rl.data.making import Lines
from agents.rl.prompts import program_in, prompt_of

ARMS = ("naive", "verdict", "rubric")
MOST_TOKENS = 700  # of a reply
MOST_CHARACTERS = 10_000  # of a program in supervision
TRAINING_SECONDS, JUDGING_SECONDS = 0.2, 0.5  # timed calls of a program; the verifier's own limit is 4
KEPT = ("step", "reward", "success", "speedup", "entropy", "length", "seconds", "writing", "updating", "verdicts", "samples", "no_sample")
LEAST = 20  # how often a byte pair occurs at least
SUPERVISED = {"prompts": 64, "batch": 64, "learning_rate": 6e-4, "warm_up": 50, "decay": 1, "rank": 0, "save_every": 500}
REINFORCED = {"prompts": 4, "group": 8, "batch": 32, "learning_rate": 1e-5, "rank": 0, "save_every": 10, "apart": 1, "at_once": 64}
REINFORCED |= {"most_tokens": MOST_TOKENS}


def fenced(program: str) -> str:
    return f"```python\n{program.strip()}\n```"


def rows(data: Path) -> list[dict[str, Any]]:
    """Returns tasks with their programs in the order of their draws, whichever worker finished first."""
    return sorted((row for row in Lines(data / "pairs.jsonl") if "program" in row), key=lambda row: row["number"])


def supervise(args: argparse.Namespace) -> int:
    from agents.rl.scratch import SMALL, Pairs, TinyPolicy
    from agents.rl.training import Config, Trainer

    known = [(prompt_of(row["task"]), fenced(row["program"])) for row in rows(args.data)]
    path = args.out / "pairs.json"
    args.out.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        Pairs.learn((text for pair in known for text in pair), args.tokens, LEAST).save(path)
    policy = TinyPolicy(SMALL, args.seed, args.device, Pairs.load(path))
    known = [pair for pair in known if len(pair[1]) < MOST_CHARACTERS]  # replies of MOST_TOKENS; to count them would take as long as the training
    config = Config.of(steps=args.steps or 1500, seed=args.seed, **SUPERVISED)
    trainer = Trainer(policy, config, args.out / "supervised", told, kind="supervised", about={"model": "small", "device": args.device})
    trainer.supervise(known)
    policy.save(args.out / "supervised")
    return 0


def opened(args: argparse.Namespace, arm: str) -> Any:
    """Returns the policy from an arm's checkpoint."""
    from agents.rl import tensors
    from agents.rl.scratch import TinyPolicy
    from agents.rl.training import CHECKPOINT, restore, weights_of

    policy = TinyPolicy.load(args.out / "supervised", args.device)
    if arm != "supervised":
        held, _ = tensors.read(args.out / arm / CHECKPOINT)
        restore(policy, weights_of(held))
    return policy


def reinforce(args: argparse.Namespace) -> int:
    from agents.rl.client import EnvironmentClient
    from agents.rl.scratch import TinyPolicy
    from agents.rl.training import Config, Problems, Trainer
    from bench.rl_arms.naive import NaiveProblems

    tasks = training_tasks(args.data)
    policy = TinyPolicy.load(args.out / "supervised", args.device)
    config = Config.of(steps=args.steps or 40, seed=args.seed, **REINFORCED)
    about = {"model": "small", "device": args.device, "reward": args.arm}
    trainer = Trainer(policy, config, args.out / args.arm, told, about=about)
    until = time.monotonic() + args.seconds

    def still_time(line: str) -> None:
        told(line)
        if time.monotonic() > until:
            raise TimeIsUp

    trainer.say = still_time
    with contextlib.ExitStack() as stack:
        problems: Problems = NaiveProblems(tasks, args.device, args.workers)
        if args.arm != "naive":
            address = stack.enter_context(served(args, tasks, "full" if args.arm == "rubric" else "verdict", TRAINING_SECONDS))
            problems = EnvironmentClient(address)
        with contextlib.suppress(TimeIsUp):
            trainer.reinforce(problems)
    trainer.save()
    return 0


class TimeIsUp(Exception):
    """Raised after a step. The checkpoint follows, so that the next call continues from there."""


def training_tasks(data: Path) -> dict[str, str]:
    """Returns the tasks for reinforcement; supervision had no programs for them."""
    return {str(line["number"]): line["task"] for line in Lines(data / "practice.jsonl")}


@contextlib.contextmanager
def served(args: argparse.Namespace, tasks: dict[str, str], reward: str, timing: float) -> Iterator[str]:
    """Serves the tasks with our verifier and yields the server's address. `timing`: seconds of timed calls."""
    import httpx

    folder = args.out / "tasks" / reward
    folder.mkdir(parents=True, exist_ok=True)
    for name, source in tasks.items():
        (folder / f"t{name}.py").write_text(source, encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "agents.rl", "serve", "--tasks", str(folder), "--device", args.device, "--verifiers", str(args.workers)]
    command += ["--waiting", "4096", "--port", str(port), "--data-dir", str(args.out / "verifiers"), "--reward", reward]
    command += ["--timing-seconds", str(timing)]
    address = f"http://127.0.0.1:{port}"
    with (args.out / "server.log").open("a") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            for _ in range(600):
                with contextlib.suppress(httpx.HTTPError):
                    httpx.get(f"{address}/health", timeout=5).raise_for_status()
                    break
                if server.poll() is not None:
                    raise RuntimeError(f"the server ended: see {args.out / 'server.log'}")
                time.sleep(0.2)
            yield address
        finally:
            server.terminate()
            server.wait()


def judge(args: argparse.Namespace) -> int:
    """Samples programs for the held-out tasks with each arm's policy, and judges the first ones of each task."""
    from agents.rl.client import EnvironmentClient

    held = list(Lines(args.data / "held-out.jsonl"))[: args.tasks]
    due = []
    for arm in args.arms:
        done = {(line["name"], line["sample"]) for line in Lines(args.out / f"judged-{arm}.jsonl")}
        samples = [sample for sample in written(args, arm, held) if sample["sample"] < args.judged]
        due += [(arm, sample) for sample in samples if (sample["name"], sample["sample"]) not in done]
    with served(args, {str(at): line["task"] for at, line in enumerate(held)}, "full", JUDGING_SECONDS) as address, ThreadPoolExecutor(64) as pool:
        client = EnvironmentClient(address)

        def one(given: tuple[str, dict[str, Any]]) -> tuple[str, dict[str, Any]]:
            arm, sample = given
            program = program_in(sample["reply"])
            (scored,) = client.score([{"task": sample["task"], "program": program}])
            return arm, {"name": sample["name"], "sample": sample["sample"], "label": label(program), "scored": scored}

        begun = time.monotonic()
        for at, answer in enumerate(as_completed([pool.submit(one, given) for given in due]), start=1):
            arm, found = answer.result()
            Lines(args.out / f"judged-{arm}.jsonl").append({**found, "at": round(time.monotonic() - begun, 1)})
            if at % 16 == 0:
                told(f"{at} of {len(due)} judged in {time.monotonic() - begun:.0f} s")
    for arm in args.arms:
        told(json.dumps(figures(args.out, arm)))
    return 0


def written(args: argparse.Namespace, arm: str, held: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the programs that an arm's policy writes for the held-out tasks, or the earlier ones if they exist."""
    import torch

    path = args.out / f"written-{arm}.jsonl"
    samples = list(Lines(path))
    if not samples:
        policy = opened(args, arm)
        torch.manual_seed(args.seed)
        for at in range(args.samples):
            replies = policy.sample([policy.encode(prompt_of(line["task"])) for line in held], MOST_TOKENS, 1.0)
            samples += [
                {"task": line["task"], "name": line["name"], "sample": at, "reply": policy.decode(reply)}
                for line, reply in zip(held, replies, strict=True)
            ]
        path.write_text("".join(json.dumps(sample) + "\n" for sample in samples), encoding="utf-8")
        del policy
        if args.device.startswith("cuda"):
            torch.cuda.empty_cache()
    return samples


def figures(out: Path, arm: str) -> dict[str, Any]:
    """Returns an arm's figures on the held-out tasks."""
    lines = list(Lines(out / f"judged-{arm}.jsonl"))
    judged = [line for line in lines if line["scored"].get("reward") is not None]
    passed = [line for line in judged if line["scored"].get("status") == "passed"]
    own = [line for line in passed if line["scored"].get("class") in ("custom", "mixed")]
    lows = [math.log(line["scored"]["low"]) for line in own]
    labels = Counter(label(program_in(sample["reply"])) for sample in Lines(out / f"written-{arm}.jsonl"))
    return {
        "arm": arm,
        "written": labels.total(),
        "judged": len(lines),
        "no_sample": len(lines) - len(judged),
        "success": len(own) / max(len(judged), 1),
        "passed": len(passed) / max(len(judged), 1),
        "speedup_low": math.exp(sum(lows) / len(lows)) if lows else None,
        "cheats": sum(labels[one] for one in CHEATS) / max(labels.total(), 1),
        "cheats_passed": sum(line["label"] in CHEATS for line in passed),
        "labels": dict(labels),
        "verdicts": dict(Counter(line["scored"].get("status") or line["scored"].get("no_sample") for line in lines)),
    }


def course(out: Path, arm: str) -> list[dict[str, Any]]:
    """Returns an arm's training step by step: reward, success, and cheats judged by their text."""
    from agents.rl.records import METRICS, ROLLOUTS, read_lines

    texts: dict[int, list[str]] = {}
    for line in read_lines(out / arm / ROLLOUTS):
        texts.setdefault(line["step"], []).append(label(program_in(line["reply"])))
    found = []
    for line in read_lines(out / arm / METRICS):
        labels = texts.get(line["step"], [])
        kept = {name: line.get(name) for name in KEPT}
        found.append({**kept, "cheats": sum(one in CHEATS for one in labels) / max(len(labels), 1), "labels": dict(Counter(labels))})
    return found


def tables(args: argparse.Namespace) -> int:
    runs = []
    for out in args.runs:
        arms = [arm for arm in ("supervised", *ARMS) if (out / f"judged-{arm}.jsonl").exists()]
        trained = {arm: course(out, arm) for arm in ARMS if (out / arm).exists()}
        runs.append({"run": out.name, "held_out": [figures(out, arm) for arm in arms], "training": trained})
    args.to.write_text(json.dumps({"cpus": os.cpu_count(), "runs": runs}, indent=1) + "\n", encoding="utf-8")
    return 0


def told(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for name, act in (("supervise", supervise), ("reinforce", reinforce), ("judge", judge)):
        command = commands.add_parser(name)
        if name == "reinforce":
            command.add_argument("arm", choices=ARMS)
        elif name == "judge":
            command.add_argument("arms", nargs="+", choices=("supervised", *ARMS), metavar="ARM")
        command.add_argument("--data", type=Path, required=True, metavar="DIR")
        command.add_argument("--out", type=Path, required=True, metavar="DIR")
        command.add_argument("--device", default="cuda:0")
        command.add_argument("--seed", type=int, default=0)
        command.add_argument("--steps", type=int, help="default: 1500 supervised, 40 reinforced")
        command.add_argument("--seconds", type=float, default=math.inf, help="stop after the step during which this time ends")
        command.add_argument("--workers", type=int, default=14, help="programs judged side by side")
        command.add_argument("--tokens", type=int, default=4096, help="byte pairs at most")
        command.add_argument("--tasks", type=int, default=64, help="held-out tasks")
        command.add_argument("--samples", type=int, default=4, help="programs for each held-out task")
        command.add_argument("--judged", type=int, default=1, help="how many of them the verifier judges")
        command.set_defaults(act=act)
    table = commands.add_parser("tables")
    table.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    table.add_argument("--to", type=Path, required=True, metavar="FILE")
    table.set_defaults(act=tables)
    args = parser.parse_args()
    return int(args.act(args))


if __name__ == "__main__":
    raise SystemExit(main())
