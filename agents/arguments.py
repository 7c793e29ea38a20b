"""Exposes a run's settings as command-line options: all of them for a new run, and only those that can change for a fork."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any, get_args

from agents.choices.limits import LIMITS, Limit
from agents.choices.workflows import DEFAULT, SEARCHES, SIDE_BY_SIDE, WORKFLOWS
from agents.devices import names_of, setting_of
from agents.llm import open_models
from agents.settings import MOST_WORKERS, Budget, Settings
from verifier.task import Mode, Precision

if TYPE_CHECKING:
    Subcommands = argparse._SubParsersAction[argparse.ArgumentParser]
else:
    Subcommands = argparse._SubParsersAction


class Unusable(ValueError):
    """Raised if the arguments cannot be used. The message says what to do."""


def add_settings(parser: argparse.ArgumentParser, *, fork: bool = False) -> None:
    """Adds the options for all fields of `Settings`. A fork gets only the options that may change, without defaults."""
    workflows = SEARCHES if fork else WORKFLOWS
    said = " ".join(f"{name}: {workflow.sentence}" for name, workflow in workflows.items())
    parser.add_argument("--workflow", choices=list(workflows), help=f"how to search for programs (default: {DEFAULT}). {said}".replace("%", "%%"))
    parser.add_argument("--llm", metavar="PROFILE", help='one profile for all three roles; "built-in" is the compiler (default)')
    for role, what in (("planner", "makes the plan"), ("coder", "writes the programs"), ("judge", "diagnoses what was measured")):
        parser.add_argument(f"--{role}", metavar="PROFILE", help=f"who {what}")
    parser.add_argument(
        "--coder-mode", choices=get_args(Settings.model_fields["coder_mode"].annotation), help="for a model: one agent, or two that share the work"
    )
    parser.add_argument(
        "--first-program",
        choices=get_args(Settings.model_fields["first_program"].annotation),
        help="for stitch with a model as coder: its own (coder, the default), or the compiler's, which the model then improves (built-in)",
    )
    parser.add_argument("--language", choices=["cuda", "triton", "cpp"], help="language of the program (default: CUDA C++ on a GPU, C++ on the CPU)")
    parser.add_argument("--target", type=float, metavar="X", help="stop at this lower bound of the speedup against eager")
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help=f"branches at once, 1 to {MOST_WORKERS}, of {SIDE_BY_SIDE} (default: 4); each device measures one program at a time",
    )
    parser.add_argument(
        "--profiles",
        choices=get_args(Settings.model_fields["profiles"].annotation),
        help="timelines of the reference and of every program that passed (all, the default), of the winner, or none, "
        "in which case decisions are based on what each verdict observed",
    )
    parser.add_argument(
        "--winner",
        choices=get_args(Settings.model_fields["winner"].annotation),
        help="the winner: the fastest program that passed (default), or the fastest with its own kernels (class custom or mixed), if any",
    )
    parser.add_argument("--review-plan", action=argparse.BooleanOptionalAction, help="wait after the first plan until a person has reviewed it")
    parser.add_argument("--seed", type=int, metavar="N", help="seed of all random choices (default: 0)")
    if not fork:
        several = "may be repeated: uses all of them, which must be of one model; a device named twice builds while it measures"
        parser.add_argument("--device", action=Joined, help=f"cpu, or cuda:0 and so on (default: cpu); {several}")
        parser.add_argument("--precision", choices=get_args(Precision), help="the policy for program and baselines alike (default: fp32-strict)")
        parser.add_argument("--mode", choices=get_args(Mode), help="the model's mode (default: train, as KernelBench leaves it)")
    add_limits(parser, defaults=not fork)


class Joined(argparse.Action):
    """An option that may be repeated; the values are joined with commas."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option_string: str | None = None) -> None:
        before = getattr(namespace, self.dest)
        setattr(namespace, self.dest, f"{before},{values}" if before else values)


def add_limits(parser: argparse.ArgumentParser, *, defaults: bool) -> None:
    usual = Budget()
    for unit, limit in LIMITS.items():
        present = getattr(usual, unit)
        note = f" (default: {f'{present:g}' if present is not None else 'no limit'}; 0: no limit)" if defaults else " (0: no limit)"
        parser.add_argument(option_of(limit), type=int if limit.whole else float, metavar="N" if limit.whole else "X", help=limit.help + note)


def option_of(limit: Limit) -> str:
    return f"--budget-{limit.unit.replace('_', '-')}"


def limits_from(args: argparse.Namespace) -> dict[str, float | None]:
    """Returns the limits given on the command line; None removes a limit."""
    given = {unit: getattr(args, f"budget_{unit}") for unit in LIMITS}
    if given["candidates"] == 0:
        raise Unusable("--budget-candidates must be at least 1: a run without programs finds nothing")
    return {unit: value or None for unit, value in given.items() if value is not None}


def settings_from(args: argparse.Namespace, base: Settings | None = None) -> Settings:
    """Returns `base` with the options applied. Raises `Unusable` if the resulting settings cannot be used here."""
    changes: dict[str, Any] = {}
    if args.llm is not None:
        changes.update(planner=args.llm, coder=args.llm, judge=args.llm)
    names = (
        "workflow",
        "planner",
        "coder",
        "judge",
        "coder_mode",
        "first_program",
        "language",
        "target",
        "workers",
        "profiles",
        "winner",
        "review_plan",
        "seed",
        "device",
        "precision",
        "mode",
    )
    changes.update({name: value for name in names if (value := getattr(args, name, None)) is not None})
    before = base or Settings()
    try:
        changes |= {"device": setting_of(changes["device"])} if "device" in changes else {}
        changes["budget"] = Budget.model_validate({**before.budget.model_dump(), **limits_from(args)})
        settings = Settings.model_validate({**before.model_dump(), **changes})
    except ValueError as error:
        first = error.errors()[0] if hasattr(error, "errors") else None
        said = f"{'.'.join(map(str, first['loc']))}: {first['msg']}" if first else str(error)
        raise Unusable(f"invalid settings: {said}") from None
    check(settings)
    return settings


def devices_from(args: argparse.Namespace) -> str:
    """Returns the named devices, or the default device. Raises `Unusable` if they cannot be used together for one run."""
    given = args.device or Settings().device
    try:
        names_of(given)
    except ValueError as error:
        raise Unusable(str(error)) from None
    return str(given)


def check(settings: Settings) -> None:
    """Raises `Unusable` if the roles cannot be combined or if a profile is not configured here."""
    from agents.roles.casting import impossible  # --help needs no roles, which load the profiler's rules and the catalogue

    models = open_models(os.environ)
    problem = impossible(settings, models)
    if problem:
        raise Unusable(f"{problem}{f' ({models.problem})' if models.problem else ''}")
