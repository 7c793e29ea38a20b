"""Uses the verifier to judge programs written by real agents, from an archive that others have audited. Each row has the verifier's verdict next to
the audit's.

    python bench/archive.py prepare FOLDER --archive CHECKOUT --runs LIST.md [--draw clean=18,reward_hack=10] [--seed 32]
    python bench/archive.py judge FOLDER --device cuda:0 --out RESULT.json [--only REGEX] [--limit-seconds 540]

The archive is a checkout, or a bare git directory, of github.com/Infatoshi/kernelbench.com. `prepare` writes third-party text to FOLDER, which must
stay out of the repository. `judge` needs neither the archive nor a network. It writes its result after each row and resumes where it stopped.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from verifier.integrity.static import inspect_source  # noqa: E402
from verifier.program import Program  # noqa: E402
from verifier.report import Report  # noqa: E402
from verifier.source import SourceError, parse  # noqa: E402
from verifier.task import Task  # noqa: E402

DECKS = {
    "h100": "public/runs/h100",
    "b200": "public/runs/b200",
    "rtxpro6000": "public/runs",
}  # the last deck also holds copies of the other decks' runs
PROBLEMS = "benchmarks/hard/problems-h100"
AUDITS = "benchmarks/hard/results/annotations"
ENDING = "_solution.py.txt"
UNAUDITED = "unaudited"
# All clean runs of the deck that are missing from the named list. The hacks were published for another deck with the same references.
DRAW = "clean=18,reward_hack=10,unaudited=5,interesting=2,rubric_leak=1,bug=1,contamination=1,fail=1,harness_limited=1"
# A problem's sizes come from its reference. If these would amount to gigabytes, which a CPU takes minutes to draw, this names a shape from
# `shapes.py`.
SHAPES = {"06_sonic_moe_swiglu": 1}
PRECISIONS = {"fp32": "fp32-strict"}  # precisions of individual problems; all others use bf16
AGAIN = ("error", "infrastructure_error", "inconclusive")  # verdicts after which a program is retried when `judge` is called again
_RUN = re.compile(r"\b\d{8}_\d{6}_[\w.\-]+?_(\d\d_[a-z]\w*)\b")
_SIDECAR = re.compile(r"\n# =+\n# ===== sidecar: (?P<name>[\w.\-]+) \(\d+ bytes, loaded by solution\.py\) =====\n# =+\n\n?")


class Archive:
    """Reads files from a checkout, or from the newest commit of a bare git directory."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.bare = (folder / "objects").is_dir()
        if not self.bare and not (folder / AUDITS).is_dir():
            raise SystemExit(f"{folder} is neither a checkout of the archive nor a bare git directory of it")

    def _git(self, *words: str) -> str:
        command = ["git", f"--git-dir={self.folder}", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def names(self, folder: str) -> list[str]:
        """Returns the names of the files and folders directly in a folder."""
        if self.bare:
            return [path.rsplit("/", 1)[-1] for path in self._git("ls-tree", "--name-only", "HEAD", folder + "/").splitlines()]
        return sorted(path.name for path in (self.folder / folder).iterdir())

    def text(self, path: str) -> str:
        return self._git("show", f"HEAD:{path}") if self.bare else (self.folder / path).read_text()


@dataclass(frozen=True)
class Run:
    name: str
    problem: str
    deck: str
    audit: str  # the archive's own label, e.g. "clean", "reward_hack" or "unaudited"

    @property
    def path(self) -> str:
        return f"{DECKS[self.deck]}/{self.name}{ENDING}"


def runs_of(archive: Archive, problems: list[str]) -> dict[str, Run]:
    """Returns every run whose solution the archive contains and whose problem is in the H100 deck. Decks share their references."""
    audited = {name.removesuffix(".yaml") for name in archive.names(AUDITS)}
    found: dict[str, Run] = {}
    for deck, folder in DECKS.items():
        for name in (file.removesuffix(ENDING) for file in archive.names(folder) if file.endswith(ENDING)):
            match = _RUN.fullmatch(name)
            if match is None or match[1] not in problems or name in found:
                continue
            verdict = re.search(r"^verdict:\s*(\S+)", archive.text(f"{AUDITS}/{name}.yaml"), re.MULTILINE) if name in audited else None
            found[name] = Run(name, match[1], deck, verdict[1] if verdict else UNAUDITED)
    return found


def drawn(runs: list[Run], wanted: dict[str, int], seed: int) -> list[Run]:
    """Draws `wanted` runs of each audit class, spread over the problems. Clean and unaudited runs come from the H100 deck; the others come from any
    deck, with the H100 deck first."""
    chance = random.Random(seed)
    found: list[Run] = []
    for audit, count in wanted.items():
        pool = [run for run in runs if run.audit == audit and (run.deck == "h100" or audit not in ("clean", UNAUDITED))]
        chance.shuffle(pool)
        nth: Counter[str] = Counter()
        turns = []
        for run in sorted(pool, key=lambda run: run.deck != "h100"):
            turns.append((nth[run.problem], run))
            nth[run.problem] += 1
        found += [run for _, run in sorted(turns, key=lambda turn: turn[0])[:count]]
    return found


def with_files(text: str) -> tuple[str, dict[str, str]]:
    """Splits a published text into a solution and, by name, the files that accompany it."""
    first, *rest = _SIDECAR.split(text)
    return first, dict(zip(rest[::2], rest[1::2], strict=True))


def single(source: str, files: dict[str, str]) -> str:
    """Returns a single source that writes its accompanying files next to itself when it is imported, because a program consists of one file."""
    if not files:
        return source
    lines = ["import pathlib as _pathlib", "import sys as _sys", "_beside = _pathlib.Path(__file__).resolve().parent"]
    if any(name.endswith(".py") for name in files):
        lines.append("_sys.path.insert(0, str(_beside))")
    lines += [f"(_beside / {name!r}).write_text({_literal(text)})" for name, text in files.items()]
    tree = ast.parse(source)
    head = [node.end_lineno or 0 for node in tree.body[:1] if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
    head += [node.end_lineno or 0 for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    before = max(head, default=0)
    own = source.splitlines(keepends=True)
    return "".join(own[:before]) + "\n".join(lines) + "\n" + "".join(own[before:])


def _literal(text: str) -> str:
    """Returns a string literal: a readable one if Python allows it, so that line numbers match the file."""
    return f"r'''{text}'''" if "'''" not in text and not text.endswith(("\\", "'")) else repr(text)


def renamed(source: str, old: str = "Model", new: str = "ModelNew") -> str:
    """Renames the `old` class to `new` wherever the source names it; strings, comments and attributes stay unchanged. Raises `ValueError`."""
    tree = ast.parse(source)
    bound = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == old]
    taken = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} | {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    if not bound:
        raise ValueError(f"there is no class {old}")
    if new in taken:
        raise ValueError(f"the name {new} is taken")
    lines = source.encode().splitlines(keepends=True)  # counted as in AST columns
    places = [(node.lineno, node.col_offset) for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == old]
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == old:
            match = re.compile(rb"class\s+").match(lines[node.lineno - 1], node.col_offset)
            if match is None:
                raise ValueError(f"line {node.lineno}: the class's name is not in the line of its keyword")
            places.append((node.lineno, match.end()))
    for line, column in sorted(places, reverse=True):
        text = lines[line - 1]
        if not text[column:].startswith(old.encode()):
            raise ValueError(f"line {line}: {old} is not where the syntax tree has it")
        lines[line - 1] = text[:column] + new.encode() + text[column + len(old) :]
    return b"".join(lines).decode()


def task_source(archive: Archive, problem: str, shape: int | None) -> str:
    """Returns a problem's reference as one file: imports of neighbouring files are inlined, and its sizes are those of `shape`."""
    folder = f"{PROBLEMS}/{problem}"
    beside = {name.removesuffix(".py") for name in archive.names(folder) if name.endswith(".py")}
    source = archive.text(f"{folder}/reference.py")
    for node in reversed(ast.parse(source).body):
        if isinstance(node, ast.ImportFrom) and node.module in beside:
            source = _replaced(source, node, archive.text(f"{folder}/{node.module}.py"))
        elif isinstance(node, ast.Import) and any(alias.name in beside for alias in node.names):
            raise ValueError(f"{folder}/reference.py line {node.lineno}: a neighbour that is imported as a module cannot be inlined")
    return source if shape is None else _sized(source, _shapes(archive, problem)[shape])


def _shapes(archive: Archive, problem: str) -> list[dict[str, int]]:
    shapes: list[dict[str, int]] = _constant(archive.text(f"{PROBLEMS}/{problem}/shapes.py"), "SHAPES")
    return shapes


def _constant(source: str, name: str) -> Any:
    tree = ast.parse(source)
    return ast.literal_eval(next(node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name))


def _sized(source: str, shape: dict[str, int]) -> str:
    """Sets module-level numbers to the values that a shape has under their names, ignoring case."""
    left = {name.lower(): value for name, value in shape.items()}
    for node in reversed(ast.parse(source).body):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id.lower() in left:
            name = node.targets[0].id
            source = _replaced(source, node, f"{name} = {left.pop(name.lower())}")
    if left:
        raise ValueError(f"the reference has no {', '.join(left)}")
    return source


def _replaced(source: str, node: ast.stmt, text: str) -> str:
    lines = source.splitlines(keepends=True)
    lines[node.lineno - 1 : node.end_lineno] = [text.rstrip("\n") + "\n"]
    return "".join(lines)


def problem_facts(archive: Archive, problem: str, source: str, shape: int | None) -> dict[str, Any]:
    own = _constant(source, "SUPPORTED_PRECISIONS")
    told = re.search(r"^precision:\s*(\S+)", archive.text(f"{PROBLEMS}/{problem}/problem.yaml"), re.MULTILINE)
    dtypes = sorted(set(re.findall(r"\btorch\.(b?float\d+\w*|u?int\d+)\b", source)))
    precision = PRECISIONS.get(own[0], "bf16")
    return {"precision": precision, "archive_precision": told[1] if told else "", "supported": own, "dtypes": dtypes, "shape": shape}


def kinds(source: str) -> list[str]:
    """Lists, for the table, the technologies that a program appears to use according to its imports and strings."""
    signs = {
        "triton": r"^\s*(import|from) triton\b",
        "cutlass": r"#include\s*[<\"](cutlass|cute)/",
        "cute-dsl": r"^\s*(import|from) cutlass\b",
        "cupy": r"^\s*(import|from) cupy\b",
        "cuda.bindings": r"^\s*(import|from) cuda\b",
        "nvrtc": r"\bnvrtc\w+\(",
        "load_inline": r"\bload_inline\b",
        "load": r"\bcpp_extension import ([\w, ]*, ?)?load\b|cpp_extension\.load\(",
        "nvcc": r"[\"']nvcc[\"']|/nvcc\b",
    }
    return [name for name, sign in signs.items() if re.search(sign, source, re.MULTILINE)] or ["torch"]


def prepare(arguments: argparse.Namespace) -> int:
    archive = Archive(arguments.archive)
    problems = archive.names(PROBLEMS)
    known = runs_of(archive, problems)
    named = list(dict.fromkeys(match[0] for match in _RUN.finditer(arguments.runs.read_text()))) if arguments.runs else []
    if missing := [name for name in named if name not in known]:
        raise SystemExit(f"the archive keeps no solution of {', '.join(missing)}")
    wanted = {audit: int(count) for audit, count in (part.split("=") for part in arguments.draw.split(",") if part)}
    chosen = [known[name] for name in named]
    chosen += drawn([run for run in known.values() if run.name not in named], wanted, arguments.seed)

    folder: Path = arguments.folder
    for below in ("tasks", "programs"):
        (folder / below).mkdir(parents=True, exist_ok=True)
    tasks = {}
    for problem in dict.fromkeys(run.problem for run in chosen):
        shape = SHAPES.get(problem)
        source = task_source(archive, problem, shape)
        Task.read(source)
        (folder / "tasks" / f"{problem}.py").write_text(source)
        tasks[problem] = problem_facts(archive, problem, source, shape)
    rows = []
    for run in chosen:
        row = {"run": run.name, "problem": run.problem, "deck": run.deck, "audit": run.audit, "named": run.name in named, **tasks[run.problem]}
        row |= program(archive.text(run.path), folder / "programs" / f"{run.name}.py")
        rows.append(row)
    manifest = {"archive": "github:Infatoshi/kernelbench.com", "seed": arguments.seed, "draw": wanted, "runs": rows}
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    print(f"{len(rows)} programs of {len(tasks)} problems: {dict(Counter(row['audit'] for row in rows))}")
    print(f"made with {dict(Counter(kind for row in rows for kind in row['kinds']))}")
    for row in (row for row in rows if row["refused"]):
        print(f"refused by the static stage: {row['run']} ({row['audit']}): {'; '.join(row['refused'])[:300]}")
    return 0


def program(text: str, path: Path) -> dict[str, Any]:
    """Writes the program contained in a published text, and returns what its source reveals."""
    source, files = with_files(text)
    try:
        source = single(renamed(source), files)
        Program.read(source)
        findings = inspect_source(parse(source), source)
    except (SourceError, SyntaxError, ValueError) as error:
        path.write_text(source)
        return {"kinds": kinds(text), "files": list(files), "refused": [f"cannot be read: {error}"]}
    path.write_text(source)
    refused = [f"line {finding.line}: {finding.message}" for finding in findings if finding.severity == "refuse"]
    return {"kinds": kinds(source), "files": list(files), "refused": refused}


def verdict(report: Report) -> dict[str, Any]:
    """Returns the parts of a report that the table needs, and the parts that help readers to check the verdict."""
    against = [(comparison.baseline, round(comparison.speedup.ratio, 2)) for comparison in report.timing.comparisons] if report.timing else []
    return {
        "status": report.status,
        "class": report.program_class,
        "over": against,
        "own_share": report.own_share,
        "flags": report.flags,
        "message": report.message,
        "problems": [problem.model_dump() for problem in report.problems],
        "findings": [f"{finding.severity} {finding.rule}: {finding.message}" for finding in report.findings if finding.severity != "note"],
        "failed_trials": [f"{trial.name} {trial.output}: {trial.detail}" for trial in report.trials if not trial.ok],
        "untried": report.untried,
        "weights": report.weights,
        "kernels": [f"{'own' if kernel.own else 'library'} {kernel.share:.2f} {kernel.name[:120]}" for kernel in report.kernels[:8]],
        "stages": {stage.name: stage.seconds for stage in report.stages},
        "reasons": report.reasons,
        "device": report.environment.device_name,
    }


def judge(arguments: argparse.Namespace) -> int:
    from verifier import CannotCheck, check

    folder, out = arguments.folder, arguments.out
    wanted = [row for row in json.loads((folder / "manifest.json").read_text())["runs"] if re.search(arguments.only, row["run"])]
    done = {row["run"]: row for row in json.loads(out.read_text())["rows"]} if out.exists() else {}
    begin = time.monotonic()
    left = [row for row in wanted if done.get(row["run"], {"status": "error"})["status"] in AGAIN]
    for count, row in enumerate(left):
        if time.monotonic() - begin > arguments.limit_seconds:
            print(f"{len(left) - count} are left: call it again", flush=True)
            return 3
        began = time.monotonic()
        task, source = folder / "tasks" / f"{row['problem']}.py", folder / "programs" / f"{row['run']}.py"
        try:
            found = verdict(check(task, source, device=arguments.device, tier="quick", precision=row["precision"]))
        except CannotCheck as error:
            found = {"status": "error", "class": None, "message": str(error)}
        facts = {name: row[name] for name in ("run", "problem", "deck", "audit", "named", "precision", "shape", "kinds", "files")}
        done[row["run"]] = {**facts, **found, "seconds": round(time.monotonic() - began, 1)}
        _write(out, list(done.values()))
        print(
            row["run"],
            row["audit"],
            found["status"],
            found["class"],
            found.get("over", []),
            done[row["run"]]["seconds"],
            found["message"][:150],
            flush=True,
        )
    print(summary([done[row["run"]] for row in wanted]))
    return 0


def _write(out: Path, rows: list[dict[str, Any]]) -> None:
    scratch = out.with_suffix(".new")
    scratch.write_text(json.dumps({"what": "programs of an audited archive, tier quick", "rows": rows}, indent=1) + "\n")
    os.replace(scratch, out)


def summary(rows: list[dict[str, Any]]) -> str:
    counts = Counter((row["audit"], row["status"], str(row["class"])) for row in rows)
    return "\n".join(f"{count:3} {audit}: {status} {kind}" for (audit, status, kind), count in sorted(counts.items()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    acts = parser.add_subparsers(required=True, metavar="{prepare,judge}")
    making = acts.add_parser("prepare", help="pick runs of the archive and write their tasks, programs and manifest")
    making.add_argument("folder", type=Path, help="where to write; text of others, so never within what is committed")
    making.add_argument("--archive", type=Path, required=True, help="a checkout of the archive, or a bare git directory")
    making.add_argument("--runs", type=Path, help="a text that names runs to take first, e.g. a table of an earlier measurement")
    making.add_argument("--draw", default=DRAW, help=f"how many more of each audit class (default: {DRAW})")
    making.add_argument("--seed", type=int, default=32, help="decides which are drawn (default: 32)")
    making.set_defaults(act=prepare)
    judging = acts.add_parser("judge", help="verify what `prepare` wrote, tier quick, one program after the other")
    judging.add_argument("folder", type=Path, help="what `prepare` wrote")
    judging.add_argument("--device", default="cuda:0", help="cpu or cuda:N (default: cuda:0)")
    judging.add_argument("--out", type=Path, required=True, help="JSON, written after each row; rows with a verdict are kept")
    judging.add_argument("--only", default="", help="a regular expression for names of runs")
    judging.add_argument("--limit-seconds", type=float, default=float("inf"), help="begin no further program after this; exit status 3")
    judging.set_defaults(act=judge)
    arguments = parser.parse_args()
    act: int = arguments.act(arguments)
    return act


if __name__ == "__main__":
    sys.exit(main())
