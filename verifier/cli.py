"""The command line: `check`, `admit`, `capture`, `profile`, `sanitize`, `doctor`. It gives the same verdicts as the web pages but does not use a
database."""

from __future__ import annotations

import argparse
import errno
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from verifier.choices import SanitizerTool, Section

if TYPE_CHECKING:  # the judge starts before any of these modules is imported
    from verifier.jobs import JobResult, Sanitized, StageEvent
    from verifier.report import Report
    from verifier.startup.starting import Started

# Imports within functions: each command loads only what it needs, and the judge starts before its client imports pydantic.
EXIT_OK, EXIT_VERDICT, EXIT_HOST = 0, 1, 2


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python -m verifier",
        description="Evaluates a program (a source that defines ModelNew) against a task (Model, get_inputs, get_init_inputs: KernelBench's format).",
        epilog="Exit status: 0 passed (or admitted, captured), 1 another verdict, 2 this host cannot do it. Reports: docs/reference/verifier.md.",
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    check = commands.add_parser("check", help="verify and measure a program; exits 0 only if it passed")
    check.add_argument("task", type=Path, metavar="TASK.py")
    check.add_argument("program", type=Path, metavar="PROGRAM.py")
    check.add_argument("--tier", choices=["quick", "full"], default="quick", help="quick: against eager; full: torch.compile too, and more trials")
    check.add_argument("--backward", action="store_true", help="check gradients as well, and measure forward and backward on both sides")
    check.add_argument("--seed", type=int, help="repeat a measurement under the seed of its report (default: drawn secretly)")
    _common(check)

    for name, text in (("admit", "check whether a task can run here and whether it proves anything"), ("capture", "the task's graph as JSON")):
        command = commands.add_parser(name, help=text)
        command.add_argument("task", type=Path, metavar="TASK.py")
        _common(command)

    profile = commands.add_parser("profile", help="record a timeline of a few calls of a program, or of the task itself")
    profile.add_argument("task", type=Path, metavar="TASK.py")
    profile.add_argument("program", type=Path, nargs="?", metavar="PROGRAM.py")
    profile.add_argument("--iterations", type=int, default=5)
    profile.add_argument("--counters", action="store_true", help="also hardware counters of the longest kernels, by Nsight Compute")
    profile.add_argument("--sections", nargs="+", choices=get_args(Section), default=[], help="of counters (default: all)")
    profile.add_argument("--timeline", type=Path, metavar="FILE", help="where to write the timeline's bytes")
    _common(profile)

    sanitize = commands.add_parser("sanitize", help="find invalid accesses, races and uninitialised reads in a program or in the task itself")
    sanitize.add_argument("task", type=Path, metavar="TASK.py")
    sanitize.add_argument("program", type=Path, nargs="?", metavar="PROGRAM.py")
    sanitize.add_argument("--tools", nargs="+", choices=get_args(SanitizerTool), default=[], help="default: all tools that the device supports")
    sanitize.add_argument("--calls", type=int, choices=[1, 2], default=1)
    _common(sanitize)

    calibrate = commands.add_parser(
        "calibrate", help="measure how much processes of the same code differ on this host; intervals are widened accordingly"
    )
    calibrate.add_argument("--seconds", type=float, default=6, help="seconds of timed calls for each of four tasks (default: 6)")
    calibrate.add_argument("--device", default="cpu", help="cpu or cuda:0 (default: cpu)")
    calibrate.add_argument("--json", action="store_true", help="print the result as JSON")
    calibrate.add_argument("--data-dir", type=Path, default=None, help="where the result is stored (default: $DATA_DIR/verifier or .data/verifier)")
    calibrate.add_argument("--quiet", action="store_true", help="no progress on standard error")

    doctor = commands.add_parser("doctor", help="report what this host can do, what is missing, and how to get it")
    doctor.add_argument("--json", action="store_true", help="machine-readable")
    doctor.add_argument("--device", default=None, help="only this one (default: all)")

    prepare = commands.add_parser(
        "prepare", help="make precompiled headers for the bindings of extensions once per host, so that the first build has them"
    )
    prepare.add_argument("--device", default="cpu", help="cpu or cuda:0 (default: cpu)")
    prepare.add_argument("--data-dir", type=Path, default=None, help="where they are stored (default: $DATA_DIR/verifier or .data/verifier)")

    prepare.add_argument("--plain", action="store_true", help="only for programs without flags of their own")
    return top


def _common(command: argparse.ArgumentParser) -> None:
    command.add_argument("--device", default="cpu", help="cpu or cuda:0 (default: cpu)")
    command.add_argument("--precision", choices=["fp32-strict", "tf32", "bf16", "fp16"], default="fp32-strict", help="the same for both sides")
    command.add_argument("--mode", choices=["train", "eval"], default="train", help="mode of the module (default: train, as KernelBench measures)")
    command.add_argument("--json", action="store_true", help="print the result as JSON")
    command.add_argument("--data-dir", type=Path, default=None, help="artefacts and calibration (default: $DATA_DIR/verifier or .data/verifier)")
    command.add_argument("--quiet", action="store_true", help="no progress on standard error")
    command.add_argument(
        "--no-sandbox", action="store_true", help="for sources that you trust, if this host cannot confine them (the same as SANDBOX=none)"
    )


def main(argv: list[str] | None = None) -> int:
    begun = time.monotonic()
    arguments = parser().parse_args(argv)
    if arguments.command == "prepare":
        from verifier.startup.prepare import main as prepare

        return prepare(arguments.device, arguments.data_dir or _data_folder(), arguments.plain)
    if arguments.command == "doctor":
        from verifier.startup.doctor import main as doctor

        return doctor(as_json=arguments.json, device=arguments.device)
    try:
        job = _job(arguments)
    except OSError as error:
        print(f"{error.filename}: {error.strerror}", file=sys.stderr)
        return EXIT_HOST
    data_dir = arguments.data_dir or _data_folder()
    from verifier.startup.starting import start_job

    if getattr(arguments, "no_sandbox", False):
        os.environ["SANDBOX"] = "none"
    started = start_job(job, arguments.device, data_dir, begun)
    try:
        import asyncio  # like the other local imports, it runs while the judge starts

        return asyncio.run(_run(job, started, data_dir, arguments))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the process that was reading the verdict has exited
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_VERDICT


def _text(path: Path) -> str:
    """Reads a source. Raises `OSError` with the file's name if it cannot be read or is not UTF-8 text."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise OSError(errno.EILSEQ, f"not UTF-8 text (byte {error.start + 1}); save it as UTF-8", str(path)) from None


def _job(arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns the job in the format of `verifier.jobs`."""
    if arguments.command == "calibrate":
        return {"kind": "calibrate", "seconds": arguments.seconds}
    common = {"task_source": _text(arguments.task), "precision": arguments.precision, "mode": arguments.mode}
    if arguments.command == "check":
        more = {"tier": arguments.tier, "backward": arguments.backward, "seed": arguments.seed}
        return {"kind": "verify", **common, "program_source": _text(arguments.program), **more}
    if arguments.command == "profile":
        program = _text(arguments.program) if arguments.program else None
        counters = {"counters": arguments.counters, "sections": arguments.sections}
        return {"kind": "profile", **common, "program_source": program, "iterations": arguments.iterations, **counters}
    if arguments.command == "sanitize":
        program = _text(arguments.program) if arguments.program else None
        return {"kind": "sanitize", **common, "program_source": program, "tools": arguments.tools, "calls": arguments.calls}
    return {"kind": arguments.command, **common}


def _data_folder() -> Path:
    return Path(os.environ.get("DATA_DIR", ".data")) / "verifier"


async def _run(job: dict[str, Any], started: Started, data_dir: Path, arguments: argparse.Namespace) -> int:
    from pydantic import TypeAdapter

    from verifier.client import Verifier
    from verifier.jobs import Job

    quiet = arguments.quiet or arguments.json

    def on_stage(event: StageEvent) -> None:
        if not quiet and event.status != "started":
            seconds = f" {event.seconds:.2f} s" if event.seconds is not None else ""
            print(f"  {event.stage:<12} {event.status}{seconds}  {event.detail}", file=sys.stderr)

    verifier = Verifier(arguments.device, data_dir, spares=3, started=started)
    try:
        result = await verifier.run(TypeAdapter(Job).validate_python(job), on_stage)
        status = _print(result, arguments)
        sys.stdout.flush()
        return status
    finally:
        await verifier.close()


def _print(result: JobResult, arguments: argparse.Namespace) -> int:
    if result.error:
        if arguments.json:
            print(json.dumps({"error": result.error}))
        else:
            print(f"error: {result.error}", file=sys.stderr)
        return EXIT_HOST
    if result.calibration is not None:
        _print_calibration(result.calibration, arguments.json)
        return EXIT_OK
    if result.profile is not None and arguments.command == "profile" and arguments.timeline and result.timeline:
        arguments.timeline.write_bytes(result.timeline)
    found = result.report or result.admission or result.capture or result.profile or result.sanitized
    assert found is not None
    if arguments.json or result.capture is not None or result.profile is not None:
        print(found.model_dump_json(indent=2))
    elif result.sanitized is not None:
        print(faults(result.sanitized))
    elif result.report is not None:
        print(table(result.report))
    elif result.admission is not None:
        admission = result.admission
        print(f"{'admitted' if admission.ok else 'refused'}  {admission.output_tree}  {' '.join(admission.flags)}".rstrip())
        for problem in admission.problems:
            print(f"  line {problem.line or '?'}: {problem.message}" + (f" ({problem.hint})" if problem.hint else ""))
        if admission.eager_ms is not None:
            print(f"  eager about {admission.eager_ms:.2f} ms, {admission.parameters} parameters")
    if result.report is not None:
        return EXIT_OK if result.report.status == "passed" else EXIT_HOST if result.report.status == "infrastructure_error" else EXIT_VERDICT
    if result.sanitized is not None:
        return EXIT_OK if result.sanitized.clean else EXIT_VERDICT if result.sanitized.faults else EXIT_HOST
    return EXIT_OK if result.admission is None or result.admission.ok else EXIT_VERDICT


def faults(found: Sanitized) -> str:
    """Formats sanitizer findings for a terminal."""
    lines = [f"{'CLEAN' if found.clean else 'FAULTS' if found.faults else 'NOTHING RAN'}  {', '.join(found.ran)} {found.tool_version}".rstrip()]
    for fault in found.faults:
        where = f" in {fault.kernel}" if fault.kernel else ""
        line = f", line {fault.line}" if fault.line else ""
        lines.append(f"  {fault.tool}: {fault.kind}{where}{line}: {fault.message}" + (f" ({fault.count} times)" if fault.count > 1 else ""))
    lines += [f"  {tool} did not run: {why}" for tool, why in found.missing.items()]
    return "\n".join(lines)


def table(report: Report) -> str:
    """Formats a report for a terminal."""
    environment = report.environment
    lines = [f"{report.status.upper()}  {report.message}".rstrip()]
    lines.append(
        f"{environment.device_name}, {environment.compiler}, torch {environment.torch}; {report.precision}, {report.mode} mode, tier {report.tier}"
    )
    for problem in report.problems:
        lines.append(f"  line {problem.line or '?'}: {problem.message}")
    if report.build is not None and report.build.compiler_output:
        lines += ["", *(f"  | {line}" for line in report.build.compiler_output.splitlines()[:30])]
    if report.timing is not None:
        lines += ["", f"  {'baseline':<22}{'baseline ms':>13}{'program ms':>13}{'speedup':>10}  95 % interval"]
        for comparison in report.timing.comparisons:
            speedup = comparison.speedup
            times = f"{comparison.baseline_ms:>13.3f}{comparison.program_ms:>13.3f}"
            lines.append(f"  {comparison.baseline:<22}{times}{speedup.ratio:>9.2f}x  {speedup.low:.2f} to {speedup.high:.2f}")
        kind = f"{report.program_class}, {report.own_share:.0%} of its time in own kernels" if report.own_share is not None else "class not measured"
        floor = f"; {report.floor_fraction:.0%} of the physical floor reached" if report.floor_fraction is not None else ""
        lines.append(f"  {'faster than eager' if report.faster else 'not shown to be faster than eager'}; {kind}{floor}")
        prepared = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in report.timing.preparing.items())
        lines += [f"  baselines ready after: {prepared}"] if prepared else []
        if report.timing.measuring is not None:
            waited = f", waited {report.timing.waiting:.1f} s for other verifiers of the device" if report.timing.waiting else ""
            lines.append(f"  measured for {report.timing.measuring:.1f} s{waited}")
    if report.trials:
        worst = max(report.trials, key=lambda trial: (not trial.ok, (trial.error or 0) / (trial.bound or 1)))
        ok = sum(trial.ok for trial in report.trials)
        figure = f"error {worst.error:.2g} of {worst.bound:.2g} allowed" if worst.error is not None and worst.bound else worst.detail
        lines += ["", f"  {ok} of {len(report.trials)} trials right; nearest to its bound: {worst.name}, {figure}"]
    for finding in report.findings:
        lines.append(f"  {finding.severity}: {f'line {finding.line}: ' if finding.line else ''}{finding.message}")
    stages = ", ".join(f"{stage.name} {stage.seconds:.2f} s" for stage in report.stages)
    lines += ["", f"  {stages}", f"  protection: {report.protection.sandbox} ({', '.join(report.protection.layers)})"]
    lines += [f"  missing: {layer}" for layer in report.protection.missing]
    return "\n".join(lines)


def _print_calibration(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(found, indent=1))
        return
    known = found["repeatability"]
    print(f"{found['device_model']}: processes of the same code differ by {known['least']:.2%} at least,")
    print(f"and by {known['noise']:.2f} of their variation from call to call ({known['source']}, {found['seconds']:.0f} s)")
    for task in found["tasks"]:
        print(f"  {task['name']:<14} {task['ms']:9.4f} ms  from call to call {task['variation']:6.2%}  from process to process {task['spread']:6.2%}")
