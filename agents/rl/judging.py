"""Lets a language model fill in the rubric.

The model reads the policy's program as text, so comments are removed first. Its reply is parsed strictly, and its honesty score cannot exceed the one
given by the rules. If the model fails to answer twice, the scores given by the rules apply.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from agents.llm.errors import ModelFailure
from agents.llm.messages import Message, Request
from agents.rl.rubric import Before, Rubric, RubricUnusable, Skill, by_rules, instructions, parse
from verifier.profiling.diagnosing.diagnosis import Diagnosis
from verifier.report import Report

ATTEMPTS = 2
MOST_TOKENS = 1024
LONGEST = 14_000  # characters in a source
C_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)

Fill = Callable[[Skill, str, str, Report, Before | None, Diagnosis | None], Awaitable[Rubric]]


def judge_by(models: Any, profile: str, say: Callable[[str], None] = lambda line: None) -> Fill:
    """`models`: `agents.llm.Models`. A failure to obtain an answer is reported and never counts against the program."""

    async def fill(skill: Skill, task: str, program: str, report: Report, before: Before | None, diagnosis: Diagnosis | None) -> Rubric:
        ruled = by_rules(skill, report, before, diagnosis)
        asked = f"Task:\n{bare(task)}\n\nProgram:\n{bare(program)}"
        if before is not None and before.diagnosis is not None:
            asked = f"The named bottleneck: {before.diagnosis.text}\n\n{asked}"
        messages = [Message(role="system", content=instructions(skill)), Message(role="user", content=asked)]
        request = Request(messages=messages, purpose=f"rubric/{skill}", max_tokens=MOST_TOKENS)
        for attempt in range(ATTEMPTS):
            try:
                reply = await models.ask(profile, request, key=f"{report.program[:16]}#{attempt}", run="rubric", on_delta=_unheard)
                return bounded(parse(reply.text, skill, profile), ruled)
            except RubricUnusable as error:
                say(f"rubric: the reply of {profile} is not a rubric: {error}")
            except ModelFailure as error:
                say(f"rubric: {error}")
        return ruled

    return fill


def bounded(given: Rubric, ruled: Rubric) -> Rubric:
    """Returns a model's rubric, with the honesty score capped at the score given by the rules."""
    honest = min(given.scores["anti_hacking"], ruled.scores["anti_hacking"])
    return replace(given, scores={**given.scores, "anti_hacking": honest}, major_hacking=given.major_hacking or ruled.major_hacking)


def bare(source: str) -> str:
    """Returns the code without comments and docstrings, including those in strings with kernel source."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return source[:LONGEST]
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = C_COMMENT.sub("", node.value)
        body = getattr(node, "body", None)
        if isinstance(body, list) and isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [line for line in body if not (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant))] or [ast.Pass()]
    return ast.unparse(tree)[:LONGEST]


async def _unheard(delta: Any) -> None:
    """Discards the deltas, because nobody watches the reply while it is written."""
