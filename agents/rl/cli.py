"""`python -m agents.rl`: data sets, synthetic tasks, the environment's server, training, and the policy over plans."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agents.arguments import Subcommands
from agents.rl.plans import cli as plans
from agents.rl.telling import say

if TYPE_CHECKING:
    from agents.rl.environment import Problem
    from agents.rl.policy import TransformersPolicy
    from agents.rl.scratch import TinyPolicy

# Imports within functions: each command loads only what it needs, because torch takes seconds and a package of another command may be missing.
OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
EXIT_CODES = "exit codes: 0 done, 1 refused because of findings (leaks, rows that fail), 2 unusable arguments or inputs, 130 interrupted"


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m agents.rl", description=__doc__, epilog=EXIT_CODES)
    commands = top.add_subparsers(dest="command", required=True)
    _export(commands)
    _synthesise(commands)
    _score(commands)
    _serve(commands)
    _harbor(commands)
    _tokens(commands)
    _train(commands)
    _merge(commands)
    plans.add_commands(commands)
    return top


def _export(commands: Subcommands) -> None:
    export = commands.add_parser(
        "export",
        help="data sets for both skills, from traces on disk or a database",
        description="Write skill1-*.parquet (task to program) and skill2-*.parquet (program and diagnosis to a better one), by split, with "
        "manifest.json, splits.json and leaks.json. A leak ends it with status 1 and nothing but leaks.json.",
        epilog=EXIT_CODES,
    )
    export.add_argument("--out", type=Path, required=True, metavar="DIR")
    export.add_argument("--traces", type=Path, nargs="+", default=[], metavar="DIR", help="folders of finished runs; requires --agreed-by")
    export.add_argument("--agreed-by", default="", metavar="WHO", help="who agreed that models may be trained on the traces: recorded in every row")
    export.add_argument("--database", action="store_true", help="this installation's runs (DATA_DIR, DATABASE_URL), of teams that agreed")
    export.add_argument("--synthetic", type=Path, nargs="+", default=[], metavar="FILE", help="rows that `programs` made")
    export.add_argument("--held-out", type=Path, nargs="+", default=[], metavar="PATH", help="tasks that must not be used for training")
    export.add_argument("--drop-leaks", action="store_true", help="leave out leaking rows, and count them, instead of ending")
    export.add_argument("--splits", type=Path, metavar="FILE", help="splits.json of an earlier export: its tasks keep their split")
    export.add_argument("--seed", type=int, default=0)
    export.add_argument("--format", choices=["parquet", "jsonl"], default="parquet")
    _common(export)
    export.set_defaults(act=run_export)


def _synthesise(commands: Subcommands) -> None:
    synthesise = commands.add_parser(
        "synthesise",
        help="synthetic tasks by composing operators, filtered by running them in the verifier's sandbox",
        description="Write tasks.jsonl, the same for the same seed, without tasks that resemble a benchmark's; with --admit also admitted.jsonl, "
        "and with --programs also programs.jsonl, rows for `export --synthetic`. The same command continues.",
    )
    synthesise.add_argument("--out", type=Path, required=True, metavar="DIR")
    synthesise.add_argument("--count", type=int, default=5000)
    synthesise.add_argument("--seed", type=int, default=0)
    against = "a KernelBench checkout, the everyday suite: no task may resemble one of theirs"
    synthesise.add_argument("--against", type=Path, nargs="+", default=[], metavar="PATH", help=against)
    synthesise.add_argument("--admit", metavar="DEVICE", help="run each task there: `cpu`, `cuda:0`")
    synthesise.add_argument("--verifiers", type=int, default=1, metavar="N", help="tasks at a time: one measures, while the others compile and check")
    synthesise.add_argument("--programs", action="store_true", help="also make and verify programs of several qualities; requires --admit")
    synthesise.add_argument("--most", type=int, metavar="N", help="run only the first N tasks")
    synthesise.add_argument("--data-dir", type=Path, metavar="DIR", help="the verifier's build cache")
    _common(synthesise)
    synthesise.set_defaults(act=run_synthesise)


def _score(commands: Subcommands) -> None:
    score = commands.add_parser("score", help="the reward of one report, with its components")
    score.add_argument("report", type=Path, help="a report, or a verifier's whole answer, as JSON")
    score.add_argument("--task", type=Path, required=True, metavar="FILE")
    score.add_argument("--program", type=Path, required=True, metavar="FILE")
    score.add_argument("--skill", choices=["write", "improve"], default="write")
    score.add_argument("--before", type=Path, metavar="FILE", help="the report that skill 2 began from")
    score.set_defaults(act=run_score)


def _problems(command: argparse.ArgumentParser) -> None:
    command.add_argument("--tasks", type=Path, nargs="+", default=[], metavar="PATH", help="task files or folders: problems of skill 1")
    command.add_argument("--rows", type=Path, nargs="+", default=[], metavar="FILE", help="files of `export`: problems of both skills")


def _serve(commands: Subcommands) -> None:
    serve = commands.add_parser("serve", help="the environment over HTTP and websocket (OpenEnv: reset, step, state) and /score for batches")
    _problems(serve)
    serve.add_argument("--device", default="cpu", help="whose clock counts: `cpu`, `cuda:0`")
    serve.add_argument("--verifiers", type=int, default=1, metavar="N", help="judges for that device: one measures at a time, others compile")
    serve.add_argument("--waiting", type=int, default=64, metavar="N", help="number of callers that may wait; others are asked to retry")
    serve.add_argument("--timing-seconds", type=float, metavar="S", help="how long tier quick may time a program (default: the verifier's limit)")
    serve.add_argument("--turns", type=int, default=1, help="of an episode")
    serve.add_argument("--profile", action="store_true", help="between turns: profile programs that passed, and show the diagnosis")
    serve.add_argument("--tier", choices=["quick", "full"], default="quick", help="full measures all baselines, and takes longer")
    serve.add_argument("--reward", choices=["full", "verdict"], default="full", help="verdict: without rubric and share of own kernels, to compare")
    serve.add_argument("--rubric", metavar="PROFILE", help="a language model that fills in the rubric (default: the rules)")
    serve.add_argument("--host", default="127.0.0.1")
    serve.add_argument("--port", type=int, default=8765)
    serve.add_argument("--data-dir", type=Path, metavar="DIR", help="the verifiers' build cache")
    serve.set_defaults(act=run_serve)


def _harbor(commands: Subcommands) -> None:
    harbor = commands.add_parser("harbor", help="tasks as folders for Harbor, whose tests ask this server")
    _problems(harbor)
    harbor.add_argument("--out", type=Path, required=True, metavar="DIR")
    harbor.set_defaults(act=run_harbor)


def _policy(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--model", default="tiny", metavar="NAME", help="`tiny`, `small`: our own, from scratch; else a folder or name for transformers"
    )
    command.add_argument("--device", default="cpu", help="where the model is: `cpu`, `cuda:0`")


def _train(commands: Subcommands) -> None:
    from agents.rl.defaults import CONFIG

    train = commands.add_parser(
        "train",
        help="supervised training on rows, or GRPO against the server; the same command continues",
        description="Train a policy in --out: metrics.jsonl, rollouts.jsonl, checkpoint.npz. With --rows it is supervised, with --server GRPO.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    _policy(train)
    train.add_argument("--out", type=Path, required=True, metavar="DIR")
    way = train.add_mutually_exclusive_group(required=True)
    way.add_argument("--rows", type=Path, nargs="+", metavar="FILE", help="files of `export`: prompts and programs")
    way.add_argument("--server", metavar="URL", help="address of `serve`; STITCHWORK_RL_TOKEN is sent if it is set")
    train.add_argument("--start", type=Path, metavar="DIR", help="for --model tiny and small: weights that `merge` wrote")
    train.add_argument("--tokens", type=Path, metavar="FILE", help="for --model tiny and small: byte pairs that `tokens` learned")
    train.add_argument("--team", default="", metavar="SLUG", help="team whose members see this training's rollouts on the page Learning")
    for name, (value, says) in CONFIG.items():
        train.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value, help=says)
    _common(train)
    train.set_defaults(act=run_train)


def _tokens(commands: Subcommands) -> None:
    tokens = commands.add_parser("tokens", help="learn byte pairs from rows, for a policy that is trained from scratch")
    tokens.add_argument("--rows", type=Path, nargs="+", required=True, metavar="FILE", help="files of `export`")
    tokens.add_argument("--out", type=Path, required=True, metavar="FILE")
    tokens.add_argument("--size", type=int, default=4096, help="tokens at most")
    tokens.add_argument("--least", type=int, default=20, help="how often a pair occurs at least")
    _common(tokens)
    tokens.set_defaults(act=run_tokens)


def _merge(commands: Subcommands) -> None:
    merge = commands.add_parser("merge", help="a trained policy as whole weights, for `transformers serve`, vLLM or a converter")
    _policy(merge)
    merge.add_argument("--checkpoint", type=Path, required=True, metavar="DIR", help="the --out of `train`")
    merge.add_argument("--out", type=Path, required=True, metavar="DIR")
    merge.add_argument("--start", type=Path, metavar="DIR", help="as given to `train`")
    merge.add_argument("--tokens", type=Path, metavar="FILE", help="as given to `train`")
    merge.add_argument("--json", action="store_true", help="what was written, as JSON, with the name and revision for a profile")
    merge.set_defaults(act=run_merge)


def _common(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="the result as JSON on standard output")
    command.add_argument("--quiet", action="store_true", help="no progress on standard error")


def progress(args: argparse.Namespace) -> Callable[[str], None]:
    return (lambda line: None) if args.quiet else say


def run_export(args: argparse.Namespace) -> int:
    from agents.rl.data import export, sources, writing
    from agents.rl.data.leaks import tasks_below
    from agents.rl.data.scrub import Scrubber

    if (args.out / "manifest.json").exists():
        raise ValueError(f"{args.out} already holds a data set: choose another --out")
    if not args.traces and not args.database and not args.synthetic:
        raise ValueError("nothing to export: give --traces DIR, --database or --synthetic FILE")
    tell = progress(args)
    writing.check(args.format)
    held_out = tasks_below(args.held_out)
    fixed = export.read_splits(args.splits) if args.splits else {}
    given = chain(sources.folders(args.traces, args.agreed_by), sources.database() if args.database else ())
    collected = export.collect(given, Scrubber(), tell)
    for path in args.synthetic:
        collected.rows += writing.read_rows(path)
    if not collected.rows:
        raise ValueError(f"it gave no rows: {json.dumps({**collected.skipped, **collected.unusable}, ensure_ascii=False)[:600]}")
    manifest = export.write(args.out, collected, held_out, seed=args.seed, fixed=fixed, format_=args.format, drop_leaks=args.drop_leaks, say=tell)
    told = manifest if args.json else None
    print(json.dumps(told, indent=1, ensure_ascii=False) if told else f"{manifest['rows']} rows of {manifest['tasks']} tasks in {args.out}")
    return OK


def run_synthesise(args: argparse.Namespace) -> int:
    import asyncio

    from agents.rl.data.leaks import tasks_below
    from agents.rl.data.making import Lines, line_of
    from agents.rl.data.synthetic import generate

    if args.programs and not args.admit:
        raise ValueError("--programs requires --admit DEVICE: programs are labelled by their verdicts")
    if args.verifiers < 1:
        raise ValueError("--verifiers must be at least 1")
    tell = progress(args)
    tasks = Lines(args.out / "tasks.jsonl")
    known = list(tasks)
    if known and {line["seed"] for line in known} != {args.seed}:
        raise ValueError(f"{tasks.path} holds tasks of another seed: choose another --out")
    wanted = generate(args.count, args.seed, tasks_below(args.against), tell)
    for place, task in enumerate(wanted):
        line = line_of(task, args.seed)
        if place < len(known) and known[place]["sha"] != line["sha"]:
            raise ValueError(f"{tasks.path} was made with another --against, or by another version: choose another --out")
        if place >= len(known):
            tasks.append(line)
            known.append(line)
    found = {"tasks": len(known), "admitted": None, "rows": None}
    if args.admit:
        found |= asyncio.run(_run_tasks(args, known[: args.most], tell))
    print(json.dumps(found) if args.json else ", ".join(f"{value} {name}" for name, value in found.items() if value is not None))
    return OK


async def _run_tasks(args: argparse.Namespace, tasks: list[dict[str, Any]], tell: Callable[[str], None]) -> dict[str, int]:
    from agents.given import default_data_dir, open_verifier
    from agents.rl.data.making import Lines, admit, figures_of, programs
    from agents.rl.pool import Pool

    clients = [open_verifier(args.admit, args.data_dir or default_data_dir()) for _ in range(args.verifiers)]
    try:
        admitted = Lines(args.out / "admitted.jsonl")
        pool = Pool(clients, most_waiting=0)
        found = {"admitted": await admit(tasks, pool, admitted, tell, at_once=args.verifiers)}
        if args.programs:
            kept = {line["sha"] for line in admitted if line["kept"]}
            rows = Lines(args.out / "programs.jsonl")
            wanted = [task for task in tasks if task["sha"] in kept]
            device = await figures_of(clients[0])
            await programs(wanted, pool, device, rows, Lines(args.out / "settled.jsonl"), args.seed, tell, at_once=args.verifiers)
            found["rows"] = sum(1 for _ in rows)
        return found
    finally:
        for client in clients:
            await client.close()


def read_problems(args: argparse.Namespace) -> list[Problem]:
    from agents.rl.data.leaks import tasks_below
    from agents.rl.data.writing import read_rows
    from agents.rl.environment import problems_in, problems_of

    found = problems_in(tasks_below(args.tasks))
    found += problems_of([row for path in args.rows for row in read_rows(path)])
    if not found:
        raise ValueError("there are no problems: give --tasks PATH or --rows FILE")
    return found


def run_serve(args: argparse.Namespace) -> int:
    try:
        import uvicorn

        from agents.rl.server import Server
    except ImportError as error:
        raise RuntimeError(f"the server needs the package {error.name}: pip install -r requirements-rl.txt") from None
    from agents.given import default_data_dir, open_verifier
    from agents.llm import open_models
    from agents.rl.environment import Conditions, Environment
    from agents.rl.judging import judge_by
    from agents.rl.pool import Pool

    if args.verifiers < 1 or args.waiting < 0 or args.turns < 1:
        raise ValueError("--verifiers and --turns must be at least 1, --waiting at least 0")
    token = os.environ.get("STITCHWORK_RL_TOKEN")
    if not token and args.host not in ("127.0.0.1", "::1", "localhost"):
        raise ValueError("others can reach this address: set STITCHWORK_RL_TOKEN, which callers then send")
    problems = read_problems(args)
    clients = [open_verifier(args.device, args.data_dir or default_data_dir(), args.timing_seconds) for _ in range(args.verifiers)]
    conditions = Conditions(turns=args.turns, tier=args.tier, profile=args.profile, reward=args.reward)
    fill = None
    if args.rubric:
        models = open_models(os.environ)
        if not models.known(args.rubric):
            raise ValueError(f"there is no profile {args.rubric}: `python -m agents llm check` lists the profiles")
        fill = judge_by(models, args.rubric, say)
    environment = Environment(problems, Pool(clients, args.waiting), conditions, fill)
    say(f"{len(problems)} problems on {args.device}: http://{args.host}:{args.port}")
    uvicorn.run(Server(environment, token).app(), host=args.host, port=args.port, log_level="warning", ws_max_size=16 << 20)
    return OK


def run_harbor(args: argparse.Namespace) -> int:
    from agents.rl.bridges import write_harbor

    print(f"{write_harbor(read_problems(args), args.out)} task folders in {args.out}")
    return OK


def open_policy(args: argparse.Namespace) -> TinyPolicy | TransformersPolicy:
    from agents.rl.policy import TransformersPolicy
    from agents.rl.scratch import SMALL, Pairs, TinyPolicy

    if args.model not in ("tiny", "small"):
        if args.start:
            raise ValueError("--start is for --model tiny and small; another model is named by --model itself")
        return TransformersPolicy(args.model, args.device)
    if args.start:
        return TinyPolicy.load(args.start, args.device)
    tokens = getattr(args, "tokens", None)
    size = SMALL if args.model == "small" else None
    return TinyPolicy(size, seed=getattr(args, "seed", 0), device=args.device, text=Pairs.load(tokens) if tokens else None)


def pairs_of(paths: Sequence[Path]) -> list[tuple[str, str]]:
    """Returns the prompt and the reply of every row. Raises `ValueError` if there is none."""
    from agents.rl.data.writing import read_rows
    from agents.rl.environment import problems_of

    rows = [row for path in paths for row in read_rows(path)]
    if not rows:
        raise ValueError("the files contain no rows")
    asked: dict[str, Problem] = {}
    pairs = []
    for row in rows:
        (problem,) = problems_of([row])
        pairs.append((asked.setdefault(problem.id, problem).prompt(), f"```python\n{row.program.strip()}\n```"))
    return pairs


def run_tokens(args: argparse.Namespace) -> int:
    from agents.rl.scratch import Pairs

    pairs = pairs_of(args.rows)
    learned = Pairs.learn((text for pair in pairs for text in pair), args.size, args.least)
    learned.save(args.out)
    lengths = sorted(len(learned.encode(reply)) for _, reply in pairs)
    found = {"tokens": learned.size, "pairs": len(pairs), "median_reply": lengths[len(lengths) // 2], "longest_reply": lengths[-1]}
    told = f"{learned.size} tokens in {args.out}; a reply has {found['median_reply']} (median), {found['longest_reply']} at most"
    print(json.dumps(found) if args.json else told)
    return OK


def run_train(args: argparse.Namespace) -> int:
    from agents.rl.client import EnvironmentClient
    from agents.rl.defaults import CONFIG
    from agents.rl.training import Config, Trainer

    config = Config.of(**{name: getattr(args, name) for name in CONFIG})
    about = {"model": args.model, "device": args.device, "team": args.team}
    trainer = Trainer(open_policy(args), config, args.out, progress(args), kind="grpo" if args.server else "supervised", about=about)
    if args.server:
        metrics = trainer.reinforce(EnvironmentClient(args.server, os.environ.get("STITCHWORK_RL_TOKEN")))
    else:
        metrics = trainer.supervise(pairs_of(args.rows))
    print(json.dumps(metrics[-1] if metrics else {}) if args.json else f"{len(metrics)} steps in {args.out}")
    return OK


def run_merge(args: argparse.Namespace) -> int:
    from agents.rl import tensors
    from agents.rl.policy import adapt
    from agents.rl.training import CHECKPOINT, restore, weights_of

    path = args.checkpoint / CHECKPOINT
    if not path.exists():
        raise ValueError(f"{path} does not exist: `train` writes it every --save-every steps")
    held, said = tensors.read(path)
    config = said["config"]
    args.seed = config["seed"]
    policy = open_policy(args)
    if config["rank"]:
        adapt(policy.module, config["rank"], config["alpha"], config["seed"])
    restore(policy, weights_of(held))
    policy.save(args.out)
    revision = f"{hashlib.sha256(path.read_bytes()).hexdigest()[:12]}-{said['step']}"
    about = {
        "revision": revision,
        "base": args.model,
        "step": said["step"],
        "kind": said["kind"],
        "checkpoint": str(path.absolute()),
        "config": config,
    }
    (args.out / "stitchwork.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    name = f"{args.out.absolute()}@{revision}"
    print(json.dumps({**about, "model": name}) if args.json else f"{args.out}: step {said['step']}; in a profile: model = {json.dumps(name)}")
    return OK


def run_score(args: argparse.Namespace) -> int:
    from agents.rl.reward import score
    from agents.rl.rubric import Before
    from verifier.report import Report

    before = Before(Report.model_validate_json(_report(args.before))) if args.before else None
    if args.skill == "improve" and before is None:
        raise ValueError("skill improve requires --before, the report of the program from which it started")
    found = score(_report(args.report), args.task.read_text(encoding="utf-8"), args.program.read_text(encoding="utf-8"), args.skill, before=before)
    print(found.line())
    return OK


def _report(path: Path) -> str:
    """Reads a report, or a server response that contains one."""
    text = path.read_text(encoding="utf-8")
    found = json.loads(text)
    return json.dumps(found["report"]) if isinstance(found, dict) and isinstance(found.get("report"), dict) else text


def main(arguments: Sequence[str] | None = None) -> int:
    from agents.rl.data.export import LeaksFound

    args = parser().parse_args(arguments)
    try:
        return int(args.act(args))
    except LeaksFound as error:
        say(f"agents.rl: {error}")
        return FAILED
    except (OSError, ValueError, RuntimeError) as error:
        say(f"agents.rl: {error}")
        return USAGE
    except KeyboardInterrupt:
        say("agents.rl: interrupted.")
        return INTERRUPTED
