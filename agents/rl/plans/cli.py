"""`python -m agents.rl plans`: trains the policy over plans on landscapes, evaluates it on held-out tasks, and saves its weights."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agents.arguments import Subcommands

if TYPE_CHECKING:
    from agents.arena.landscape import Table
    from agents.rl.plans.episodes import Course
    from agents.rl.plans.training import Config

# Imports within functions: --help works without loading the modules that train and play.
RESULTS = Path("bench/results/rl-plans.json")


def add_commands(commands: Subcommands) -> None:
    plans = commands.add_parser("plans", help="a policy over plan tokens: trained on landscapes, evaluated on held-out tasks")
    below = plans.add_subparsers(dest="plans", required=True)
    _train(below)
    _evaluate(below)
    _weights(below)


def _common(command: argparse.ArgumentParser, out: str) -> None:
    command.add_argument("--landscapes", type=Path, required=True, metavar="FILE", help="a table that bench/landscapes.py measured")
    command.add_argument("--out", type=Path, required=True, metavar="DIR", help=out)
    command.add_argument("--json", action="store_true", help="the result as JSON on standard output")
    command.add_argument("--quiet", action="store_true", help="no progress on standard error")


def _held(command: argparse.ArgumentParser, choices: Sequence[str]) -> None:
    command.add_argument("--hold-out", choices=choices, default="kind", help="of tasks, one at a time (default kind: softmax, norms, ...)")


def _train(commands: Subcommands) -> None:
    train = commands.add_parser(
        "train",
        help="a policy for each fold; the same command continues",
        description="Train, for each fold, --networks small networks in OUT/FOLD/seed-N (run.json, metrics.jsonl, checkpoint.npz, policy.json). "
        "A fold is named by what it holds out. CPU, one thread.",
    )
    _common(train, "the trainings; below DATA_DIR/learning the page Learning shows them")
    _held(train, ("kind", "task", "none"))
    train.add_argument("--networks", type=int, default=3, metavar="N", help="of a fold, by seed, whose mean is the policy (default 3)")
    train.add_argument("--folds", nargs="+", metavar="NAME", help="only these")
    train.add_argument("--steps", type=int, help="of a network (default: see run.json)")
    train.add_argument("--imitation", type=int, help="of the steps, those that imitate")
    train.set_defaults(act=run_train)


def _evaluate(commands: Subcommands) -> None:
    evaluate = commands.add_parser(
        "evaluate",
        help="the share of the best known speed after 8 and 24 programs on held-out tasks",
        description="Play the trained policies on the tasks that they were not trained on, beside random, descend and the ledger.",
    )
    _common(evaluate, "output folder of `train`, with the same --landscapes and --hold-out")
    _held(evaluate, ("kind", "task"))
    evaluate.add_argument("--seeds", default="1-50", help="of the searches' noise and chance (default 1-50)")
    evaluate.add_argument("--results", type=Path, default=RESULTS, metavar="FILE", help=f"(default {RESULTS})")
    evaluate.set_defaults(act=run_evaluate)


def _weights(commands: Subcommands) -> None:
    weights = commands.add_parser("weights", help="the policy of the fold without held-out tasks, as a text file with its provenance")
    _common(weights, "output folder of `train --hold-out none`")
    weights.add_argument("--to", type=Path, required=True, metavar="FILE", help="agents.moving.scorer reads it, without torch")
    weights.add_argument("--evaluated", type=Path, metavar="FILE", help="results of `evaluate`, whose figures are put into the provenance")
    weights.set_defaults(act=run_weights)


def run_train(args: argparse.Namespace) -> int:
    from agents.rl.plans import folds

    _one_thread()
    if args.networks < 1:
        raise ValueError("--networks must be at least 1")
    table, courses = read(args.landscapes)
    chosen = folds.folds(courses, args.hold_out)
    if args.folds and (unknown := sorted(set(args.folds) - {fold.name for fold in chosen})):
        raise ValueError(f"there is no fold {unknown[0]!r}: {', '.join(fold.name for fold in chosen)}")
    told = {}
    for fold in chosen:
        if not args.folds or fold.name in args.folds:
            told[fold.name] = folds.train(fold, config_of(args), args.networks, args.out, provenance(args, table), _say(args))
    print(json.dumps(told, indent=1) if args.json else f"{len(told)} folds of {args.networks} networks in {args.out}")
    return 0


def run_evaluate(args: argparse.Namespace) -> int:
    from agents.arena.cli import seeds_from
    from agents.rl.plans import evaluating

    _one_thread()
    table, courses = read(args.landscapes)
    found = evaluating.evaluate(courses, args.hold_out, args.out, seeds_from(args.seeds), _say(args))
    said = {**provenance(args, table), "held_out": args.hold_out, "interval": evaluating.INTERVAL, "counting": evaluating.COUNTING}
    content = {"about": said, **found}
    evaluating.write(args.results, content)
    print(json.dumps(content, indent=1) if args.json else evaluating.table(found))
    return 0


def run_weights(args: argparse.Namespace) -> int:
    from agents.moving import scorer
    from agents.rl.plans import folds

    table, courses = read(args.landscapes)
    (whole,) = folds.folds(courses, "none")
    policy = folds.combined(args.out, whole, "policy")
    about = {**policy.about, **provenance(args, table)}
    if args.evaluated:
        after = json.loads(args.evaluated.read_text(encoding="utf-8"))["after"]
        about["held_out"] = {f"after {programs}": contest["policy less"] for programs, contest in after.items()}
    scorer.write(args.to, policy.layers, about)
    print(json.dumps(about) if args.json else f"{args.to}: {sum(w.size + b.size for w, b in policy.layers)} numbers")
    return 0


def read(path: Path) -> tuple[Table, list[Course]]:
    from agents.arena.landscape import LandscapeError, load
    from agents.rl.plans.episodes import courses

    table = load(path if path.exists() else path.with_name(path.name + ".gz"))
    found = courses(table)
    if not found:
        raise LandscapeError(f"{path}: no program of any task passed")
    return table, found


def config_of(args: argparse.Namespace) -> Config:
    from agents.rl.plans.training import Config

    given = {one.name: value for one in fields(Config) if (value := getattr(args, one.name, None)) is not None}
    return Config(**given)


def provenance(args: argparse.Namespace, table: Table) -> dict[str, Any]:
    """Returns the origin of the training programs: the table's name, kind and device, and the date."""
    import hashlib

    programs = hashlib.sha256("".join(sorted(landscape.programs for landscape in table.landscapes)).encode()).hexdigest()[:12]
    device = table.device.get("device_name", "")
    return {"landscapes": args.landscapes.name, "table": table.kind, "card": device, "programs": programs, "on": datetime.now(UTC).date().isoformat()}


def _say(args: argparse.Namespace) -> Callable[[str], None]:
    from agents.rl.telling import say

    return (lambda line: None) if args.quiet else say


def _one_thread() -> None:
    """Limits torch to a single thread, because more threads slow such a small network down."""
    import torch

    torch.set_num_threads(1)
