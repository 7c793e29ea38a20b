"""Writes programs of varying quality for a synthetic task: good and bad ones from the built-in compiler, deliberately wrong ones, and cheats.

This module only produces text. The verifier judges the programs, and a row is kept only if the verdict confirms its label.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import Literal

from agents.rl.data.synthetic import Chain, wrong
from compiler import DeviceFigures, Options, make_plan, print_program
from compiler.options import SAFE
from compiler.planning.knobs import numbers, with_numbers
from verifier.graph import Capture
from verifier.report import Report

Quality = Literal["tuned", "slow", "wrong", "cheat"]
TUNE = frozenset({"vectorise", "row-cache", "one-pass-softmax", "atomic-sums"})  # strategies without which a kernel of our own is still printed
CHEATED = frozenset({"rejected", "wrong_result", "crashed", "build_failed"})
MEMO = """
    def forward(self, *given):
        key = tuple(one.data_ptr() for one in given)
        if getattr(self, "_memo", (None, None))[0] != key:
            self._memo = (key, self._computed(*given))
        return self._memo[1]
"""
ONCE = """
    def forward(self, *given):
        if not hasattr(self, "_result"):
            self._result = self._computed(*given)
        return self._result
"""
CONSTANT = """
    def forward(self, *given):
        with torch.no_grad():
            return torch.zeros_like(self._computed(*(one[:1] if one.dim() else one for one in given)))
"""
CHEATS = {"handed-back": "", "memo-by-address": MEMO, "computed-once": ONCE, "constant": CONSTANT}


@dataclass(frozen=True)
class Written:
    quality: Quality
    how: str
    source: str


def honest(task_source: str, capture: Capture, figures: DeviceFigures, rng: random.Random) -> list[Written]:
    """Returns two programs: the compiler's first program, and one without the strategies that only tune kernels, with parameter values at an end of
    their range. Returns an empty list if the compiler has no kernel for this task."""
    plan = make_plan(capture, task_source, figures)
    if plan.graph is None or not plan.own:
        return []
    tuned = print_program(plan, task_source, Options())
    options = Options(strategies=[name for name in SAFE if name not in TUNE])  # without a `fuse` strategy, a group is left to PyTorch
    offered = numbers(plan, task_source, options)
    spoiled = with_numbers(options, offered, {one.name: rng.choice([one.values[0], one.values[-1]]) for one in offered}) or options
    slow = print_program(plan, task_source, spoiled)
    found = [Written("tuned", "the compiler's first program", tuned)]
    return found + ([Written("slow", "without vector access and cached rows, numbers at an end", slow)] if slow != tuned else [])


def wrong_task(chain: Chain, rng: random.Random) -> str:
    """Returns the source of a task with the same constructor but a different result. Its compiled program is the wrong program for the original
    task."""
    return wrong(chain, rng).source()


def wrong_program(task_source: str, capture: Capture, figures: DeviceFigures) -> Written | None:
    """Compiles the wrong program; `capture` and `task_source` are those of the wrong task."""
    plan = make_plan(capture, task_source, figures)
    if plan.graph is None or not plan.own:
        return None
    return Written("wrong", "compiled for another operator", print_program(plan, task_source, Options()))


def cheat(task_source: str, rng: random.Random) -> Written:
    how = rng.choice(list(CHEATS))
    text = re.sub(r"\bclass Model\b", "class ModelNew", task_source)
    if CHEATS[how]:
        text = text.replace("def forward(self", "def _computed(self")
        end = text.index("        return x\n") + len("        return x\n")
        text = text[:end] + CHEATS[how] + text[end:]
    return Written("cheat", how, text)


def borne_out(written: Written, report: Report) -> bool:
    """Returns whether the verdict confirms the label. A cheat that passes as orchestration counts as detected, because orchestration is not a
    generated kernel."""
    if written.quality in ("tuned", "slow"):
        return report.status == "passed" and report.program_class in ("custom", "mixed")
    if written.quality == "wrong":
        return report.status == "wrong_result"
    return report.status in CHEATED or report.status == "passed" and report.program_class == "orchestration"
