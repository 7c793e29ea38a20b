"""Parses a prompt: its role, its situation, and the task, plan, step, program, evidence and methods given in its sections.

The conversation is the only input. Each prompt identifies itself in a line `Situation: ROLE/SITUATION`, and its sections begin with `## Title`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from compiler import DeviceFigures
from tests.standin import cheats
from verifier.source import sha256

SITUATION = re.compile(r"^Situation: ([a-z]+)/([a-z-]+)$", re.MULTILINE)
ASKED = re.compile(r"^Asked: ([a-z]+)/([a-z-]+)$", re.MULTILINE)
FENCE = re.compile(r"^(`{3,})[^\n`]*\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
WORKERS = ("coder", "frontend", "midend")  # roles that write programs
TELLING = ("Evidence", "Diagnosis", "What earlier attempts taught", "Replies that could not be used", "Why a new plan", "Problem")
JSON_FAULTS = ("malformed-json", "prose")
PROGRAM_FAULTS = ("prose", "wrong-file", "does-not-compile", "wrong-result", "cheat")


class Unreadable(ValueError):
    """Raised if the prompt is not one of Stitchwork's, or lacks the sections that its situation needs."""


@dataclass(frozen=True)
class Asked:
    """`sections` are those of the prompt; for a second or third attempt, `problem` describes the error in the reply."""

    role: str
    situation: str
    sections: dict[str, str]
    system: str
    problem: str = ""
    task: str = ""  # source of the reference
    program: str = ""  # as the prompt shows it
    step: str = ""  # id of the step
    cheats: tuple[str, ...] = field(default=(), repr=False)

    @property
    def writes(self) -> bool:
        return self.role in WORKERS

    @property
    def place(self) -> str:
        """Returns the scope of a mistaken belief: this task, role and step."""
        return f"{sha256(self.task)[:12]}/{self.role}/{self.step or '-'}"

    @property
    def evidence(self) -> str:
        """Returns the prompt's report of the failure, without the programs in it."""
        told = [text for title, text in self.sections.items() if title in TELLING]
        return FENCE.sub(_without_program, "\n".join([*told, self.problem]))

    @property
    def faults(self) -> tuple[str, ...]:
        if not self.writes:
            return JSON_FAULTS
        return (*PROGRAM_FAULTS, "stale-block") if self.program else PROGRAM_FAULTS

    @property
    def device(self) -> str:
        return "cuda" if re.search(r"^Device: cuda", self.sections.get("Task", ""), re.MULTILINE) else "cpu"

    @property
    def figures(self) -> DeviceFigures:
        """Returns the device's figures, as far as the prompt contains them."""
        said = self.sections.get("Device", "")
        threads = re.search(r"(\d+) threads", said)
        multiprocessors = re.search(r"(\d+) multiprocessors", said)
        known = {"threads": threads and int(threads[1]), "multiprocessors": multiprocessors and int(multiprocessors[1])}
        return DeviceFigures.of({name: value for name, value in known.items() if value} | {"device": self.device})

    @property
    def mode(self) -> str:
        return "eval" if re.search(r"^Mode: eval", self.sections.get("Task", ""), re.MULTILINE) else "train"

    @property
    def thought(self) -> str:
        return f"This is {self.role}/{self.situation}" + (f" for step {self.step}." if self.step else ".")


def read(turns: Sequence[tuple[str, str]]) -> Asked:
    """Parses a conversation. Raises `Unreadable`."""
    system = "\n".join(text for author, text in turns if author in ("system", "developer"))
    said = [text for author, text in turns if author == "user"]
    first = next(((text, found) for text in said if (found := SITUATION.search(text)) and found[1] != "any"), None)
    if first is None:
        raise Unreadable("there is no line `Situation: ROLE/SITUATION`")
    text, found = first
    found_sections = sections(text)
    problems = [sections(later).get("Problem", later) for later in said if later is not text]
    task = source_in(found_sections.get("Reference code", ""), "class Model(")
    if not task:
        raise Unreadable("there is no section `Reference code` with a program in it")
    shown = found_sections.get("Program", "") or found_sections.get("Best program so far", "")
    asked = Asked(
        role=found[1],
        situation=found[2],
        sections=found_sections,
        system=system,
        problem=problems[-1] if problems else "",
        task=task,
        program=source_in(shown, "class ModelNew"),
        step=step_in(found_sections.get("Step", "")),
    )
    if not asked.writes:
        return asked
    return replace(asked, cheats=tuple(cheats.fitting(task, asked.device)))


def sections(text: str) -> dict[str, str]:
    """Returns title -> text. A line within a fence that looks like a title belongs to the fence."""
    covered = [found.span() for found in FENCE.finditer(text)]
    heads = [found for found in SECTION.finditer(text) if not any(low < found.start() < high for low, high in covered)]
    ends = [found.start() for found in heads[1:]] + [len(text)]
    result: dict[str, str] = {}
    for head, end in zip(heads, ends, strict=True):
        result[head[1].strip()] = text[head.end() : end].strip()
    return result


def source_in(text: str, needed: str) -> str:
    """Returns the fenced block that contains `needed`, or the text itself if it does."""
    for found in FENCE.finditer(text):
        if needed in found[2]:
            return found[2].rstrip("\n") + "\n"
    return text + "\n" if needed in text and "```" not in text else ""


def step_in(text: str) -> str:
    """Returns the id of a step, or "" if the prompt has none."""
    found = re.search(r"^id: ([\w.-]+)$", text, re.MULTILINE)
    return found[1] if found else ""


def _without_program(found: re.Match[str]) -> str:
    return "" if "class ModelNew" in found[2] else found[0]
