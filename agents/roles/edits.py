"""Reads a coder's reply as a program: either one whole file, or search/replace blocks that are applied exactly. A block that does not apply is
rejected, and the error gives its location.

Models see programs without the text of the build helper (`folded`), which is restored here (`unfolded`). The helper is forty lines long, and no model
should have to copy it.
"""

from __future__ import annotations

import ast
import difflib
import re
from dataclasses import dataclass
from functools import cache

from agents.llm.messages import Reply
from agents.roles.replies import UnusableReply, cut_off
from agents.roles.shortening import Shortened
from agents.strategies import named as strategies_named
from compiler.targets.library import BUILDER
from verifier.program import Program
from verifier.source import SourceError

MAX_PROGRAM = 200_000  # characters
SHOWN_LINES = 5
MARKER = "# (stitch_build is put in here)"

_FENCE = re.compile(r"^(?P<indent>[ \t]*)(?P<ticks>`{3,}|~{3,})[ \t]*(?P<info>[^\n`]*)$")
_SEARCH, _DIVIDE, _REPLACE = (re.compile(p) for p in (r"^<{5,9} ?SEARCH\b.*$", r"^={5,9}[ \t]*$", r"^>{5,9} ?REPLACE\b.*$"))
_LINE = re.compile(r"^[ \t>*_#-]*(TITLE|CHANGES|STRATEGY)[*_]*[ \t]*:[*_]*[ \t]*(.*?)[ \t*_]*$", re.MULTILINE | re.IGNORECASE)
_ELIDED = re.compile(  # a comment in place of code: "# ... rest of the kernel", "// remaining code unchanged"
    r"^[ \t]*(?:#|//)[ \t]*(?:(?:\.\.\.|…)[^\n]*\b(?:rest|remaining|existing|unchanged|same|before|here)\b[^\n]*"
    r"|(?:the )?(?:rest|remaining)\b[^\n]*\b(?:unchanged|as before|stays? the same|goes here)\b[^\n]*)$",
    re.MULTILINE | re.IGNORECASE,
)
PYTHON = ("", "python", "py", "python3")


@dataclass(frozen=True)
class Written:
    """A program, as extracted from a reply."""

    source: str
    title: str
    changes: str
    strategy: str
    form: str  # "whole file", "2 blocks"


# The name under which a server offers a trained policy: NAME@REVISION (`transformers serve` uses this form; `agents.rl merge` reports the revision
# that it wrote).
POLICY = re.compile(r"[\w./:+-]{1,150}@[\w.-]{1,60}", re.ASCII)
_SIGNATURE = re.compile(r"\A(?:# Written by [^\n]*\n)+")


def author_of(profile: str, model: str) -> str:
    """Return the name of the author: the profile's name and, if known, the server's name for the model."""
    return f"{profile} ({model[:220]})" if model else profile


def signed(source: str, profile: str, model: str) -> str:
    """Return the program. If a trained policy wrote it, the first line names its author, so anyone who finds the file can identify the weights.
    Programs from other models are left unchanged, as are those whose server reports an invalid model name, because that text could contain
    anything."""
    return f"# Written by {author_of(profile, model)}\n{unsigned(source)}" if POLICY.fullmatch(model) else source


def unsigned(source: str) -> str:
    return _SIGNATURE.sub("", source)


@dataclass(frozen=True)
class Swap:
    """One search/replace block; `line` is the line of the reply where it begins."""

    search: str
    replace: str
    line: int


@cache
def helper() -> str:
    return BUILDER.read_text().strip()


def folded(source: str) -> str:
    """Return a program in the form shown to models."""
    return source.replace(helper(), MARKER)


def unfolded(source: str) -> str:
    """Return the program with the build helper inserted at its marker, or after the imports if there is no marker."""
    if MARKER in source:
        return source.replace(MARKER, helper(), 1).replace(MARKER, "")
    tree = ast.parse(source)
    called = any(isinstance(node, ast.Name) and node.id == "stitch_build" for node in ast.walk(tree))
    defined = any(isinstance(node, ast.FunctionDef) and node.name == "stitch_build" for node in tree.body)
    if not called or defined:
        return source
    last = 0
    for position, node in enumerate(tree.body):
        docstring = position == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.Import | ast.ImportFrom) or docstring:
            last = node.end_lineno or node.lineno
        else:
            break
    lines = source.splitlines()
    return "\n".join([*lines[:last], "", "", helper(), "", *lines[last:]]).lstrip("\n") + "\n"


def read_program(reply: Reply, task_source: str, present: str | None, shown: Shortened | None = None) -> Written:
    """Return the program that a reply describes. `present` is the existing program that the reply may edit, and `shown` is the text that the model
    saw, if parts of it were left out. Raises `UnusableReply`."""
    text = reply.text
    if not text.strip():
        raise UnusableReply("The reply is empty." + cut_off(reply))
    swaps = find_swaps(text)
    if swaps:
        if present is None:
            raise UnusableReply("There is no program yet that SEARCH/REPLACE blocks could change: write the whole file in one python fence.")
        source = apply(swaps, shown.text if shown is not None else folded(present), task_source)
    else:
        source = find_file(reply)
    source = checked(source if shown is None else _restored(shown, source))
    if present is not None and source.strip() == present.strip():
        raise UnusableReply("The program is the same as before: nothing in it has changed.")
    named = {name.upper(): value.strip() for name, value in _LINE.findall(text.partition("```")[0].partition("<<<<<")[0])}
    form = f"{len(swaps)} block{'s' if len(swaps) != 1 else ''}" if swaps else "whole file"
    return Written(source, named.get("TITLE", "")[:200], named.get("CHANGES", "")[:1000], strategies_named(named.get("STRATEGY", "")), form)


def _restored(shown: Shortened, source: str) -> str:
    try:
        return shown.restored(source)
    except KeyError as unknown:
        there = ", ".join(shown.bodies) or "none"
        raise UnusableReply(
            f"The line `// (kept: {unknown.args[0]}, ...)` stands for nothing: what was left out of the program is {there}."
        ) from None


def find_file(reply: Reply) -> str:
    """Return the one Python fence that holds the program."""
    blocks, open_at = fences(reply.text)
    programs = [(info, body) for info, body in blocks if info.split()[:1] in ([], *[[name] for name in PYTHON]) or "python" in info.lower()]
    holding = [(info, body) for info, body in programs if re.search(r"^class\s+ModelNew\b", body, re.MULTILINE)]
    if open_at is not None:
        raise UnusableReply(f"The fence that opens in line {open_at} of the reply is never closed.{cut_off(reply)}")
    if not blocks:
        if re.search(r"^class\s+ModelNew\b", reply.text, re.MULTILINE):
            return reply.text  # code without a fence; the parser decides whether there is prose around it
        raise UnusableReply("There is no program in the reply: neither a python fence nor SEARCH/REPLACE blocks." + cut_off(reply))
    if len(holding) > 1 and len({body.strip() for _, body in holding}) > 1:
        raise UnusableReply(f"There are {len(holding)} python fences that define ModelNew: which one is the program? Send one.")
    if not holding:
        if not programs:
            kinds = ", ".join(sorted({(info or "no language").split()[0] for info, _ in blocks}))
            raise UnusableReply(f"There is no python fence, only {kinds}: kernels go into strings of the one python file.")
        wrong_class(programs[-1][1])
        raise UnusableReply("No python fence in the reply defines `class ModelNew`: send the whole file, not a part of it.")
    info, body = holding[-1]
    name = re.search(r"[\w./\\-]+\.(?:py|cu|cpp)\b", info)
    if name and re.split(r"[/\\]", name[0])[-1] not in ("program.py", "model_new.py", "modelnew.py", "candidate.py"):
        raise UnusableReply(f"The fence names the file {name[0]}: only the program, program.py, may be written.")
    return body


def wrong_class(source: str) -> None:
    """Reject the source, and name the classes that were found instead."""
    classes = re.findall(r"^class\s+(\w+)", source, re.MULTILINE)
    if "Model" in classes:
        raise UnusableReply("The fence defines `Model`, which is the reference and may not be edited: the program defines `class ModelNew`.")
    if classes:
        raise UnusableReply(f"The fence defines {', '.join(classes[:4])}, but the program is measured by `class ModelNew(nn.Module)`: name it so.")


def fences(text: str) -> tuple[list[tuple[str, str]], int | None]:
    """Return the fenced blocks as (info string, content), and the line of a fence that is never closed."""
    blocks: list[tuple[str, str]] = []
    opened: tuple[str, str, int] | None = None
    body: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        found = _FENCE.match(line)
        if opened is None:
            if found:
                opened, body = (found["ticks"], found["info"].strip(), number), []
        elif found and not found["info"].strip() and found["ticks"][0] == opened[0][0] and len(found["ticks"]) >= len(opened[0]):
            blocks.append((opened[1], "\n".join(body) + "\n"))
            opened = None
        else:
            body.append(line)
    return blocks, opened[2] if opened else None


def find_swaps(text: str) -> list[Swap]:
    """Return the search/replace blocks in order. Raises `UnusableReply` for an incomplete block."""
    swaps: list[Swap] = []
    state, begun = "", 0
    search: list[str] = []
    replace: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if _SEARCH.match(line):
            if state:
                raise UnusableReply(f"Block {len(swaps) + 1} (line {begun} of the reply) is not complete before the next SEARCH in line {number}.")
            state, begun, search, replace = "search", number, [], []
        elif state == "search" and _DIVIDE.match(line):
            state = "replace"
        elif state and _REPLACE.match(line):
            if state == "search":
                raise UnusableReply(f"Block {len(swaps) + 1} (line {begun} of the reply) has no line ======= between SEARCH and REPLACE.")
            swaps.append(Swap("\n".join(search), "\n".join(replace), begun))
            state = ""
        elif state == "search":
            search.append(line)
        elif state == "replace":
            replace.append(line)
    if state:
        raise UnusableReply(f"Block {len(swaps) + 1} (line {begun} of the reply) is never closed by >>>>>>> REPLACE.")
    return swaps


def apply(swaps: list[Swap], program: str, task_source: str) -> str:
    """Apply all blocks in sequence; each must match exactly one place. If any block does not match, apply none, and report the reason for each
    mismatch."""
    problems: list[str] = []
    for number, swap in enumerate(swaps, start=1):
        if not swap.search.strip():
            problems.append(f"Block {number}: its SEARCH is empty. Copy the lines before or after which something is to be inserted.")
            continue
        places = occurrences(program, swap.search)
        if len(places) == 1:
            at = places[0]
            end = at + len(swap.search)
            program = program[:at] + swap.replace + (program[end + 1 :] if not swap.replace and program[end : end + 1] == "\n" else program[end:])
        elif places:
            lines = ", ".join(str(program.count("\n", 0, at) + 1) for at in places[:SHOWN_LINES])
            problems.append(f"Block {number}: its SEARCH matches {len(places)} times (lines {lines} of the program). Copy more lines around it.")
        elif occurrences(task_source, swap.search):
            problems.append(f"Block {number}: its SEARCH is text of the reference code, which may not be edited. Only the program may.")
        else:
            problems.append(f"Block {number}: its SEARCH does not occur in the program (0 matches).{nearest(program, swap.search)}")
    if problems:
        raise UnusableReply("No block was applied, since not all of them fit:\n" + "\n".join(f"- {problem}" for problem in problems))
    return program


def occurrences(text: str, wanted: str) -> list[int]:
    """Return the positions where `wanted` occurs in `text` as whole lines."""
    found = []
    at = text.find(wanted)
    while at >= 0:
        before, after = text[at - 1 : at] if at else "\n", text[at + len(wanted) : at + len(wanted) + 1] or "\n"
        if before == "\n" and after == "\n":
            found.append(at)
        at = text.find(wanted, at + 1)
    return found


def nearest(program: str, search: str) -> str:
    """Return the place in the program that is most similar to a block's first distinctive line, with the differences."""
    lines = program.splitlines()
    wanted = [line for line in search.splitlines() if line.strip()]
    texts = [line.strip() for line in lines]
    for line in wanted:  # the first line that has no exact match
        if line in lines:
            continue
        if line.strip() in texts:
            number = texts.index(line.strip()) + 1
            return f" Line {number} of the program differs from `{line.strip()[:100]}` only in its indentation."
        close = difflib.get_close_matches(line.strip(), texts, n=1, cutoff=0.5)
        if close:
            number = texts.index(close[0]) + 1
            return f" It has `{line.strip()[:120]}`; the nearest line of the program is line {number}: `{close[0][:120]}`."
        return f" Nothing in the program is like `{line.strip()[:120]}`."
    return " All its lines occur in the program, but not one after the other in this order."


def checked(source: str) -> str:
    """Return a source that parses and defines ModelNew, with the build helper inserted. Raises `UnusableReply` otherwise."""
    source = source.replace("\r\n", "\n").strip("\n") + "\n"
    if len(source) > MAX_PROGRAM:
        raise UnusableReply(f"The program has {len(source):,} characters; more than {MAX_PROGRAM:,} are not accepted.")
    try:
        ast.parse(source)  # parse before the helper is inserted, so that line numbers in errors match the model's text
        source = unfolded(source)
        Program.read(source)
    except SyntaxError as error:
        raise UnusableReply(syntax(error, source)) from None
    except SourceError as error:
        wrong_class(source)
        raise UnusableReply("; ".join(f"{f'line {p.line}: ' if p.line else ''}{p.message}" for p in error.problems)) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise UnusableReply(f"The program cannot be read as Python: {str(error)[:200] or type(error).__name__}.") from None
    names = {node.name for node in ast.parse(source).body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    if names & {"get_inputs", "get_init_inputs"}:
        raise UnusableReply("The program defines get_inputs or get_init_inputs: these are the task's. Leave them out.")
    if elided := _ELIDED.search(source):
        raise UnusableReply(
            f"The program is not complete: it holds the placeholder `{elided[0].strip()[:100]}`. Send all of it, or SEARCH/REPLACE blocks."
        )
    return source


def syntax(error: SyntaxError, source: str) -> str:
    lines = source.splitlines()
    line = error.lineno or 0
    shown = f" `{lines[line - 1].strip()[:120]}`" if 0 < line <= len(lines) else ""
    return f"The program is not Python: {error.msg} in line {line}{shown}."
