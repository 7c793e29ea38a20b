"""Compares today's programs from the built-in compiler with stored ones, timing each pair alternately in one measurement (`rival_source`).

    python bench/rival.py CHECKOUT --devices cuda:0,cuda:1 --out RESULT.json [--tier full] [--limit-seconds 540] [--resume] [--again slower,failed]
    python bench/rival.py CHECKOUT --out RESULT.json --print-only [--resume]             (needs no GPU)

Tasks of KernelBench's levels 1 to 3 are drawn with a seed from the rows whose stored program passed. For each of them, today's program is printed for
the device of the stored row, with the changes that the row lists: the first program, plus `cuda-graph`. For a `block-size`, the row does not store
the number, so the number that yields the text nearest to the stored one is used. `how` says which of these a row used. If both texts are equal,
possibly apart from comments, nothing is measured, and the row says so. `vs_old` is the time of the stored program divided by the time of today's
program: below 1 / 1.03, today's program is slower by more than 3 %. Today's programs are in an archive next to RESULT.
"""

# sandboxed: imports tasks; run it where KernelBench itself may run

from __future__ import annotations

import argparse
import ast
import asyncio
import gc
import json
import os
import re
import sys
import tarfile
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import geometric_mean
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.beside import Beside, Result, Row, shuffled, stored_programs, verdict  # noqa: E402
from bench.sweep.store import code, packed, slug, write  # noqa: E402
from bench.sweep.tasks import Item, NoSuchTasks, items  # noqa: E402
from verifier.report import Report  # noqa: E402
from verifier.source import sha256  # noqa: E402

SETS = ("level1", "level2", "level3")
SLOWER = 1 / 1.03  # `vs_old` below this: today's program is slower by more than 3 %
SAME_TEXT, SAME_CODE, PRINTED, UNPRINTED = "same text", "same code", "printed", "not printed"
PRINT_SECONDS = 150.0  # time limit for capturing and printing one task
TASK_SECONDS = 240.0  # time limit for measuring one pair, builds included


def drawn(rows: Mapping[str, Row], stored: Mapping[str, str], seed: int, count: int) -> list[str]:
    """Returns `count` keys of fp32 rows of KernelBench that passed and whose program is stored, ordered by digest."""
    passed = [key for key, row in rows.items() if row["status"] == "passed" and key.endswith(" fp32-strict") and key.partition("/")[0] in SETS]
    return shuffled([key for key in passed if key in stored], seed)[:count]


def bare(text: str) -> str:
    """Returns a program without comments, docstrings and empty lines, in Python and in the kernels' source."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "__global__" in node.value:
            lines = (re.sub(r"\s*//.*", "", line) for line in re.sub(r"/\*.*?\*/", "", node.value, flags=re.S).splitlines())
            node.value = "\n".join(line for line in lines if line.strip())
    return ast.dump(tree)


def compared(old: str, new: str) -> str:
    if old == new:
        return SAME_TEXT
    return SAME_CODE if bare(old) == bare(new) else PRINTED


def distance(old: str, new: str) -> int:
    """Returns the number of lines that occur in only one of the texts."""
    one, other = Counter(old.splitlines()), Counter(new.splitlines())
    return ((one - other) + (other - one)).total()


def print_one(task: Path, old: str, moves: Sequence[str], device: Mapping[str, Any]) -> Row:
    """Captures a task and prints today's program with the changes in `moves`."""
    from bench.coverage import captured_of
    from compiler import DeviceFigures, Options, make_plan, print_program
    from compiler.planning.cost import launch_bound

    source = task.read_text()
    captured = captured_of(task, "fp32-strict")
    if captured.graph is None:
        return {"status": UNPRINTED, "message": f"not captured: {captured.reason}"}
    figures = DeviceFigures.of({**device, **device.get("figures", {}), "device": "cuda"})
    plan = make_plan(captured, source, figures, "fp32-strict")
    options, how = Options(), ["the first program"]
    if launch_bound(plan) or "cuda-graph" in moves:
        options = options.with_strategy("cuda-graph")
        how.append("cuda-graph, as the row lists" if "cuda-graph" in moves else "cuda-graph, as launches dominate")
    text = print_program(plan, source, options)
    for move in moves:
        name, _, place = move.partition(" ")
        if name == "block-size":
            text, options, said = nearest(plan, source, options, place, old, text)
            how.append(said)
        elif name != "cuda-graph":
            how.append(f"without {move}, which cannot be repeated from its name")
    return {"status": compared(old, text), "text": text, "how": "; ".join(how)}


def nearest(plan: Any, source: str, options: Any, group: str, old: str, text: str) -> tuple[str, Any, str]:
    """Among programs that differ in one number of the group, returns the one whose text is nearest to the stored program's, with its options and a
    note."""
    from compiler import print_program
    from compiler.planning.knobs import numbers, with_numbers

    best, said = (distance(old, text), text, options), f"no number of {group} brings it nearer to the stored text"
    known = [number for number in numbers(plan, source, options) if group in number.groups]
    for number in known:
        for value in number.values:
            changed = with_numbers(options, known, {number.name: value})
            other = print_program(plan, source, changed) if changed is not None else text
            if distance(old, other) < best[0]:
                best, said = (distance(old, other), other, changed), f"{number.name} = {value} in {group}, nearest to the stored text"
    return best[1], best[2], said


def print_child(given: Path, out: Path) -> None:
    """Prints one program in this process. `given` holds the arguments of `print_one`."""
    import torch

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    gc.disable()  # torch 2.11 crashes if the collector encounters an export's fake tensors
    asked = json.loads(given.read_text())
    try:
        row = print_one(Path(asked["task"]), asked["old"], asked["moves"], asked["device"])
    except Exception as error:  # an error of the task or the compiler is itself the finding
        row = {"status": UNPRINTED, "message": f"{type(error).__name__}: {str(error)[:300]}"}
    out.write_text(json.dumps(row))
    sys.stdout.flush()
    os._exit(0)


async def measured(asked: Mapping[str, str], device: str, tier: str, data_dir: Path) -> Row:
    """Verifies the new program with the old one as its rival."""
    job = {"task_source": asked["task"], "program_source": asked["new"], "rival_source": asked["old"], "tier": tier}
    result, environment = await verdict(device, data_dir, **job)
    return row_of(result.report, result.error, environment)


def row_of(report: Report | None, error: str, environment: Row | None) -> Row:
    found: Row = {"environment": environment}
    if report is None:
        return found | {"status": "infrastructure_error", "message": error}
    found |= {"status": report.status, "class": report.program_class, "tier": report.tier, "message": report.message, "flags": report.flags}
    found["stages"] = {stage.name: round(stage.seconds, 1) for stage in report.stages}
    rival = report.timing.rival if report.timing is not None else None
    if report.status == "passed" and rival is not None:
        found["vs_old"] = {name: float(f"{value:.5g}") for name, value in rival.speedup.model_dump().items()}
        found |= {"new_ms": rival.program_ms, "old_ms": rival.baseline_ms}
        found["vs_eager"] = report.speedup.model_dump() if report.speedup is not None else None
    return found


def summary(rows: Mapping[str, Row]) -> Row:
    """Returns the programs that were equal, those that were measured, and those that are slower by more than 3 %, both as measured and with
    certainty."""
    counts = Counter(row["status"] for row in rows.values())
    timed = {key: row["vs_old"] for key, row in rows.items() if row.get("vs_old")}
    lost = {key: f"{row['status']}: {row.get('message', '')}"[:200] for key, row in rows.items() if unmeasured(row)}
    return {
        "drawn": len(rows),
        SAME_TEXT: counts[SAME_TEXT],
        SAME_CODE: counts[SAME_CODE],
        "to be measured": counts[PRINTED],
        "measured": len(timed),
        "geometric_mean": round(geometric_mean([ratio["ratio"] for ratio in timed.values()]), 4) if timed else None,
        "slower_by_more_than_3_percent": [key for key, ratio in timed.items() if ratio["ratio"] < SLOWER],
        "vs_old": {key: told(ratio) for key, ratio in sorted(timed.items(), key=lambda pair: pair[1]["ratio"])},
        "surely_slower_by_more_than_3_percent": [key for key, ratio in timed.items() if ratio["high"] < SLOWER],
        "not_measured": lost,
    }


def told(ratio: Mapping[str, float]) -> str:
    return f"{ratio['ratio']:.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}]"


def unmeasured(row: Row) -> bool:
    """Returns whether measuring or printing was tried without success."""
    return not row.get("vs_old") and row["status"] not in (SAME_TEXT, SAME_CODE, PRINTED)


def line(key: str, row: Row) -> str:
    if row.get("vs_old"):
        return f"{key}: {told(row['vs_old'])} times as fast as the stored program"
    return f"{key}: {row['status']}{': ' + row['message'][:200] if row.get('message') else ''}"


def again(row: Row, names: Sequence[str]) -> bool:
    """Returns whether a finished row should be measured again."""
    slower = row.get("vs_old") is not None and row["vs_old"]["ratio"] < SLOWER
    return ("slower" in names and slower) or ("failed" in names and unmeasured(row) and row["status"] != UNPRINTED)


class Bench:
    def __init__(self, arguments: argparse.Namespace):
        self.arguments, self.begun = arguments, time.monotonic()
        content = json.loads(arguments.rows.read_text())
        self.rows, self.device = content["rows"], content.get("device") or {}
        self.old = stored_programs(self.rows, arguments.programs)
        fixed = {"seed": arguments.seed, "stored": arguments.rows.name}
        self.result = Result(arguments.out, fixed, summary)
        if arguments.resume:
            self.result.resume()
        self.keys = drawn(self.rows, self.old, arguments.seed, arguments.count)
        self.items: dict[str, Item] = {item.key: item for item in items(SETS, arguments.checkout)}
        self.code = f"{code()}, torch {version('torch').partition('+')[0]}"  # torch's decompositions shape the captured graph
        self.archive = arguments.out.with_name(f"{arguments.out.stem}-programs.tar.gz")
        self.new = kept(self.archive)

    @property
    def end(self) -> float:
        return self.begun + self.arguments.limit_seconds

    def print(self) -> None:
        """Prints the programs that today's code has not printed yet. Discards measurements of any other text."""
        wanted = [key for key in self.keys if not self._printed(key)]
        fresh = Result(self.arguments.out.with_name(f"{self.arguments.out.stem}-printing.json"), {}, lambda rows: None)
        with tempfile.TemporaryDirectory(prefix="rival-") as made:
            for key in wanted:
                asked = {"task": str(self.items[key].path.resolve()), "old": self.old[key], "moves": self.rows[key]["moves"], "device": self.device}
                (Path(made) / slug(key)).write_text(json.dumps(asked))

            def command(key: str, device: str, out: Path) -> list[str]:
                return [sys.executable, __file__, "--print-one", str(Path(made) / slug(key)), "--out", str(out)]

            series = Beside(fresh, ["host"], command, self.end, PRINT_SECONDS, share=self.arguments.jobs, said=line)
            series.environment = lambda device: {"CUDA_VISIBLE_DEVICES": ""}  # printing needs no GPU, and a context would take its memory
            left = series.run(wanted)
        fresh.path.unlink(missing_ok=True)
        for key in wanted:
            row = fresh.rows.get(key, {"status": UNPRINTED, "message": "the time was up"})
            if key not in left:
                self._take(key, row)
        write(self.archive, packed({f"{slug(key)}.py": text.encode() for key, text in self.new.items()}))
        self.result.save()

    def _printed(self, key: str) -> bool:
        row = self.result.rows.get(key)
        return row is not None and row.get("code") == self.code and (row["status"] == UNPRINTED or sha256(self.new.get(key, "")) == row.get("new"))

    def _take(self, key: str, row: Row) -> None:
        text = row.pop("text", None)
        facts = {
            "code": self.code,
            "old": self.rows[key]["program"],
            "stored_moves": self.rows[key]["moves"],
            "stored_flags": self.rows[key]["flags"],
        }
        if text is None:
            self.new.pop(key, None)
            self.result.rows[key] = {**row, **facts}
            return
        before = self.result.rows.get(key)
        self.new[key] = text
        if before is not None and before.get("new") == sha256(text):
            self.result.rows[key] = {**before, "code": self.code}  # the same program, so its measurement stands
            return
        self.result.rows[key] = {"status": row["status"], "how": row["how"], "lines": distance(self.old[key], text), "new": sha256(text), **facts}

    def measure(self) -> list[str]:
        given = self.arguments
        names = given.again.split(",")
        rows = self.result.rows
        wanted = [key for key in self.keys if key in rows and key in self.new and (rows[key]["status"] == PRINTED or again(rows[key], names))]
        for key in wanted:
            if rows[key]["status"] != PRINTED:
                earlier = {name: rows[key].pop(name, None) for name in ("status", "message", "vs_old", "tier", "device")}
                rows[key] |= {"status": PRINTED, "earlier": [*rows[key].get("earlier", []), earlier]}
        with tempfile.TemporaryDirectory(prefix="rival-") as made:
            for key in wanted:
                asked = {"task": self.items[key].path.read_text(), "new": self.new[key], "old": self.old[key]}
                (Path(made) / slug(key)).write_text(json.dumps(asked))

            def command(key: str, device: str, out: Path) -> list[str]:
                told = ["--device", device, "--tier", given.tier, "--data-dir", str(given.data_dir / device.replace(":", "-"))]
                return [sys.executable, __file__, "--measure-one", str(Path(made) / slug(key)), *told, "--out", str(out)]

            return Beside(self.result, given.devices.split(","), command, self.end, given.task_seconds, said=line).run(wanted)


def kept(archive: Path) -> dict[str, str]:
    """Returns the programs of an earlier session by key, or none."""
    if not archive.exists():
        return {}
    with tarfile.open(archive) as tar:
        return {name_of(member): tar.extractfile(member).read().decode() for member in tar.getnames()}  # type: ignore[union-attr]


def name_of(file: str) -> str:
    """Returns the key of a file name, the inverse of `slug`."""
    folder, _, rest = file.removesuffix(".py").partition("-")
    return f"{folder}/{rest.removesuffix('-fp32-strict')} fp32-strict"


def parser() -> argparse.ArgumentParser:
    results = ROOT / "bench" / "results"
    top = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("checkout", type=Path, nargs="?", metavar="CHECKOUT", help="of KernelBench")
    top.add_argument("--out", type=Path, required=True, metavar="RESULT")
    top.add_argument("--devices", default="cuda:0", help="comma-separated; one pair at a time for each name, and pairs on one device take turns")
    top.add_argument("--rows", type=Path, default=results / "kernelbench-h200.json", help="the stored rows")
    top.add_argument("--programs", type=Path, default=results / "kernelbench-h200-programs.tar.gz", help="the stored programs")
    top.add_argument("--seed", type=int, default=0)
    top.add_argument("--count", type=int, default=30, help="tasks drawn (default: 30)")
    top.add_argument("--tier", default="quick", choices=["quick", "full"])
    top.add_argument("--print-only", action="store_true", help="no measurement; needs no GPU")
    top.add_argument("--jobs", type=int, default=max(1, min(30, (os.cpu_count() or 1) // 2)), help="programs printed at a time")
    top.add_argument("--limit-seconds", type=float, default=540.0, help="of this session")
    top.add_argument("--task-seconds", type=float, default=TASK_SECONDS, help="of one measurement, builds included")
    top.add_argument("--resume", action="store_true", help="go on with the rows that RESULT has")
    top.add_argument("--again", default="", help='with --resume, also measure these rows again: "slower" (by more than 3 %%), "failed"')
    top.add_argument("--data-dir", type=Path, default=ROOT / ".data" / "rival", help="build caches, a folder a device")
    for hidden in ("--print-one", "--measure-one", "--device"):
        top.add_argument(hidden, help=argparse.SUPPRESS)
    return top


def main() -> int:
    arguments = parser().parse_args()
    if arguments.print_one:
        print_child(Path(arguments.print_one), arguments.out)
    if arguments.measure_one:
        asked = json.loads(Path(arguments.measure_one).read_text())
        row = asyncio.run(measured(asked, arguments.device, arguments.tier, arguments.data_dir))
        arguments.out.write_text(json.dumps(row))
        return 0
    try:
        bench = Bench(arguments)
    except (NoSuchTasks, ValueError, OSError) as error:
        parser().error(str(error))
    bench.print()
    left = [] if arguments.print_only else bench.measure()
    bench.result.save()
    print(json.dumps(summary(bench.result.rows), indent=1))
    print(f"{len(left)} left: {', '.join(left[:5])}" if left else "nothing is left")
    return 3 if left else 0


if __name__ == "__main__":
    sys.exit(main())
