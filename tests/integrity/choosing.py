"""Chooses the entries of the corpus that a run on the CPU tries.

Every commit runs the sentinels, the entries whose file or task it changed, and the entries of the groups whose defence it touched. Programs that are
timed run once per kind unless the commit touched the clock. A commit that touched machinery shared by all defences (the judge, the parties, the
devices) also runs each kind once, since a defect there breaks all entries of a kind. The rest is left to `make test-corpus`. A source counts as
unchanged if only its docstrings or comments changed.

Changes are relative to the merge base with `main`; on `main` itself, including a fresh clone of it, they are relative to the first parent of HEAD. If
HEAD has no parent (a clone of a single commit), nothing is known to have changed; without any history, everything is tried.

    CORPUS=all|changed|sentinels    the whole corpus, or one of the two halves of a commit's choice (default: both)
    CORPUS_PART=i/n                 the ith of n parts of what was chosen, counted from 0
    CORPUS_BASE=COMMIT              the commit to which changes are relative
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.integrity.corpus import ROOT, Entry, is_timed

MAINS = ("origin/main", "main@{upstream}", "main")
Group = Literal["static", "build", "class", "memory", "state", "clock", "confinement", "numbers", "channel", "honest"]
EVERY: frozenset[Group] = frozenset(("static", "build", "class", "memory", "state", "clock", "confinement", "numbers", "channel", "honest"))

# The defences that a source file in `verifier/` may break, determined by its folder or else by its name. Any other file may break everything.
# Profiling produces no verdict.
ROOMS: dict[str, set[Group]] = {
    "build": {"build"},
    "confinement": {"confinement"},
    "correctness": {"numbers", "memory", "state", "honest"},
    "integrity": {"static", "class", "honest"},
    "passes": {"numbers"},
    "profiling": set(),
    "shim": {"clock"},
    "timing": {"clock", "state"},
}
STEMS: dict[str, set[Group]] = {
    **dict.fromkeys(("limits", "permit"), {"confinement"}),
    **dict.fromkeys(("oracle", "own_types", "widening"), {"numbers", "honest"}),
    **dict.fromkeys(("still", "turns"), {"clock"}),
    **dict.fromkeys(("channel", "layout", "party_failure"), {"channel"}),
    **dict.fromkeys(("bytecode", "checking", "cli", "doctor", "graph", "group_sizes", "prepare"), set()),
    **dict.fromkeys(("cuda", "cuda_arena", "cuda_driver", "cuda_early", "cuda_exchanges", "cuda_graph"), set()),
    **dict.fromkeys(("cuda_party", "cuda_rates", "cuda_shared"), set()),
}

# Sources that every verification runs, whatever it refuses.
MACHINERY = ("devices", "judge", "parties", "startup")

# Groups by their number in the taxonomy. An attack on the design counts as an attack on the clock if its task is long enough to be worth it,
# otherwise as one on the channel.
TAXONOMY: tuple[tuple[range, Group], ...] = (
    (range(1, 11), "class"),
    (range(11, 17), "memory"),
    (range(17, 29), "state"),
    (range(29, 40), "clock"),
    (range(40, 46), "confinement"),
    (range(46, 57), "numbers"),
    (range(57, 63), "channel"),
    (range(63, 64), "static"),
    (range(64, 66), "state"),
    (range(66, 70), "numbers"),
    (range(70, 71), "clock"),
    (range(71, 74), "confinement"),
)
CLOCK_TASKS = {"chain", "chain_long"}

# These give a decisive result within seconds; together they include at least two for each group except the static one.
SENTINELS = (
    *("63_base64", "design_forged_evidence"),
    *("01_reference_verbatim", "02_kernel_never_called"),
    *("11_uninitialised_output", "14_persistent_buffer", "15_result_over_the_input"),
    *("17_memo_by_address", "18_memo_in_training", "47_late_bf16"),
    *("32_thread_after_return", "37_no_time_at_all"),
    *("44_reads_the_parent", "73_connects_by_address"),
    *("48_fast_exponential", "51_softmax_without_maximum", "53_zero_bias"),
    *("57_exit_zero", "60_patches_the_reference", "design_extra_answer"),
    *("cpu_rms_norm_buffer_reused", "cpu_softmax_openmp"),
)


@dataclass(frozen=True)
class Changes:
    """The files changed by a commit, as repository paths; None if there is nothing to compare with, in which case anything may have changed."""

    files: frozenset[str] | None


def groups_of(entry: Entry) -> set[Group]:
    built: set[Group] = {"build"} if re.search(r"stitch_build\(|load_inline|CppExtension", entry.source) else set()
    if entry.kind == "honest":
        return built | {"honest"}
    static: set[Group] = {"static"} if entry.defence == "static" else set()
    if entry.hack == "design":
        return built | static | {"clock" if entry.task.stem in CLOCK_TASKS else "channel"}
    return built | static | {group for numbers, group in TAXONOMY if int(entry.hack) in numbers}


def touched(files: Iterable[str]) -> set[Group]:
    """Returns the groups whose defence a change to `files` may break."""
    found: set[Group] = set()
    for file in files:
        parts = Path(file).parts
        if len(parts) > 1 and parts[0] == "verifier" and Path(file).suffix != ".md":
            found |= _of_source(parts)
    return found


def _of_source(parts: tuple[str, ...]) -> set[Group] | frozenset[Group]:
    stem = Path(parts[-1]).stem
    if len(parts) > 2 and parts[1] in ROOMS:
        return ROOMS[parts[1]]
    if _is_machinery(parts):
        return set()
    return STEMS.get(stem, EVERY)


def _is_machinery(parts: tuple[str, ...]) -> bool:
    path = Path(parts[-1])
    return len(parts) > 2 and parts[0] == "verifier" and parts[1] in MACHINERY and path.suffix == ".py" and path.stem not in STEMS


def touches_machinery(files: Iterable[str]) -> bool:
    return any(_is_machinery(Path(file).parts) for file in files)


def _left_to_corpus(entry: Entry, broken: set[Group]) -> bool:
    """Returns whether an entry is left to `make test-corpus` unless it is the first of its kind: it is timed, and the commit touched neither the
    clock nor a source that may break everything."""
    return "clock" not in broken and any(is_timed(entry, form) for form in entry.short_forms)


def one_of_each_kind(entries: list[Entry]) -> set[str]:
    """Returns the first entry, by name, of each kind; a kind is a number in the taxonomy with its defence and verdict, or an honest task with or
    without an extension."""
    first: dict[tuple[str, ...], str] = {}
    for entry in sorted(entries, key=lambda entry: entry.name):
        kind = (
            (entry.task.name, str("build" in groups_of(entry))) if entry.kind == "honest" else (entry.hack, entry.defence, "|".join(entry.verdicts))
        )
        first.setdefault(kind, entry.name)
    return set(first.values())


def of_a_commit(entries: list[Entry], changes: Changes, which: str = "") -> list[Entry]:
    """Returns the entries to run for a commit, in the order of `entries`. `which`: the value of CORPUS."""
    if which not in ("", "all", "changed", "sentinels"):
        raise ValueError(f"CORPUS is {which!r}; it must be all, changed or sentinels")
    if which == "all" or (changes.files is None and which != "sentinels"):
        return list(entries)
    wanted: set[str] = set() if which == "changed" else set(SENTINELS)
    if which != "sentinels" and changes.files is not None:
        broken = touched(changes.files)
        kinds = one_of_each_kind(entries)
        wanted |= {entry.name for entry in entries if _paths(entry) & changes.files}
        wanted |= {entry.name for entry in entries if groups_of(entry) & broken and (entry.name in kinds or not _left_to_corpus(entry, broken))}
        wanted |= kinds if touches_machinery(changes.files) else set()
    return [entry for entry in entries if entry.name in wanted]


def _paths(entry: Entry) -> set[str]:
    return {str(path.relative_to(ROOT)) for path in (entry.path, entry.task) if path.is_relative_to(ROOT)}


def part(entries: list[Entry], text: str) -> list[Entry]:
    """Returns one part of `entries`. `text`: "i/n", or empty for all."""
    if not text:
        return entries
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if found is None or int(found[1]) >= int(found[2]):
        raise ValueError(f"CORPUS_PART is {text!r}; it must be i/n with i below n")
    return [entry for entry in entries if zlib.crc32(entry.name.encode()) % int(found[2]) == int(found[1])]


def changes_of(git: Callable[..., str | None], base: str = "") -> Changes:
    """Returns the changes made by a commit. `git` runs a command and returns its output, or None if it fails. `base`: the value of CORPUS_BASE."""
    head = git("rev-parse", "HEAD")
    if head is None:
        return Changes(None)
    if not base:
        main = next((name for name in MAINS if git("rev-parse", "--verify", "--quiet", name) is not None), None)
        found = git("merge-base", "HEAD", main) if main is not None else None
        if found is None:
            return Changes(None)
        base = found if found != head else git("rev-parse", "--verify", "--quiet", "HEAD^1") or head
    changed = git("diff", "--name-only", "--no-renames", base)
    if changed is None:
        return Changes(None)
    added = git("ls-files", "--others", "--exclude-standard") or ""
    return Changes(frozenset(filter(None, [*(file for file in changed.splitlines() if not _reworded(git, base, file)), *added.splitlines()])))


def _reworded(git: Callable[..., str | None], base: str, file: str) -> bool:
    """Returns whether only docstrings and comments in one of the product's sources have changed since `base`."""
    path = ROOT / file
    if not file.endswith(".py") or file.startswith("tests/") or not path.is_file():
        return False
    before = git("show", f"{base}:{file}")
    try:
        return before is not None and code_of(before) == code_of(path.read_text(encoding="utf-8"))
    except SyntaxError:
        return False


def code_of(source: str) -> str:
    """Returns a source's syntax tree as text, without docstrings. Raises `SyntaxError`."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:]
    return ast.dump(tree)


def ask_git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, timeout=60)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def chosen(entries: list[Entry], device: str) -> list[Entry]:
    """Returns the `entries` to try on `device` in this run: on a GPU, all of them, limited only by CORPUS_PART."""
    entries = [entry for entry in entries if entry.runs_on(device)]
    if device == "cpu":
        which = os.environ.get("CORPUS", "")
        changes = Changes(frozenset()) if which in ("all", "sentinels") else changes_of(ask_git, os.environ.get("CORPUS_BASE", ""))
        entries = of_a_commit(entries, changes, which)
    return part(entries, os.environ.get("CORPUS_PART", ""))
