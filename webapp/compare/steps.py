"""Aligns the plans, strategies and kernels of several sides.

A step of a plan is identified by its operators, so that the same step in two runs shares a row. A kernel belongs to the step whose operators its name
mentions, because generated kernels are named after their operators and library kernels after their kind.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from agents.payloads import CandidateProposed, PlanEdited, PlanPayload, PlanProposed, PlanStep
from verifier.report import ObservedKernel
from webapp.compare.sides import Side
from webapp.runs.models import Candidate

KINDS = [
    ("matrix product", r"gemm|gemv|cutlass|cublas|xmma|matmul|addmm|linear|mkl|dot_kernel|splitk"),
    ("convolution", r"conv|cudnn|winograd|wgrad|dgrad|implicit"),
    ("attention", r"attention|flash|fmha"),
    ("softmax", r"softmax"),
    ("norm", r"norm|welford"),
    ("pool", r"pool"),
    ("recurrent cell", r"lstm|gru|rnn"),
    ("reduction", r"reduce|argmax|argmin|sum_kernel|mean"),
    ("copy", r"copy|memcpy|memset|cat_|concat|transpose|permute|fill|contiguous"),
    ("pointwise", r"elementwise|vectorized|unrolled|pointwise|triton_poi|mul|add|relu|sigmoid|tanh|exp|div|sub"),
]
WORDS = {  # words for the operators of a plan
    "matrix product": ("linear", "matmul", "matrix product", "mm", "bmm", "addmm", "einsum"), "convolution": ("convolution", "conv"),
    "attention": ("attention",), "softmax": ("softmax",), "norm": ("norm",), "pool": ("pool",), "recurrent cell": ("lstm", "gru", "rnn"),
    "reduction": ("sum", "mean", "max", "min", "argmax", "cumsum"),
}  # fmt: skip


@dataclass
class Step:
    key: tuple[str, ...]  # its operators; ("", kind) for kernels that belong to no step
    title: str
    times: list[int]  # per side: how many times its plan contains the step (a repeated block contains it many times), or 0
    kernels: list[list[ObservedKernel]]

    def total(self, at: int) -> float:
        return sum(kernel.ms for kernel in self.kernels[at])

    @property
    def cells(self) -> list[tuple[float | None, list[ObservedKernel], bool, int]]:
        """Returns, for each side, the milliseconds per call, the kernels, whether the side is the fastest, and how many times its plan contains the
        step."""
        totals = [self.total(at) if kernels else None for at, kernels in enumerate(self.kernels)]
        known = [value for value in totals if value is not None]
        least = min(known) if len(known) > 1 and len(set(known)) > 1 else None
        return [(a, b, a is not None and a == least, c) for a, b, c in zip(totals, self.kernels, self.times, strict=True)]

    @property
    def planned(self) -> bool:
        return any(self.times)


def steps_of(sides: list[Side]) -> list[Step]:
    """Returns all steps of all plans, in the order in which plans first name them, followed by the kernels without a step, grouped by kind."""
    plans = [plan_of(side) for side in sides]
    found: dict[tuple[str, ...], Step] = {}
    for at, plan in enumerate(plans):
        for step in plan:
            key = tuple(sorted(step.operators or [step.title]))
            found.setdefault(key, Step(key, step.title or "a step", [0] * len(sides), [[] for _ in sides])).times[at] += 1
    for at, side in enumerate(sides):
        own = [row for row in found.values() if row.times[at]]
        for kernel in side.report.kernels if side.report else []:
            row = home(kernel, own)
            if row is None:
                kind = kind_of(kernel.via or kernel.name)
                row = found.setdefault(("", kind), Step(("", kind), kind, [0] * len(sides), [[] for _ in sides]))
            row.kernels[at].append(kernel)
    return list(found.values())


def plan_of(side: Side) -> list[PlanStep]:
    """Returns the steps of the plan that the run was following when it proposed the candidate."""
    events = side.run.events.filter(kind__in=[PlanProposed.kind, PlanEdited.kind, CandidateProposed.kind]).order_by("seq")
    steps: list[PlanStep] = []
    for event in events:
        match event.body:
            case PlanPayload(steps=planned):
                steps = planned
            case CandidateProposed(candidate=number) if side.candidate is not None and number == side.candidate.number:
                break
    return steps


def home(kernel: ObservedKernel, steps: list[Step]) -> Step | None:
    """Returns the step whose operators match the kernel's name best or, for a library kernel, the only step of its kind."""
    name = re.sub(r"\W+", "_", kernel.name.lower())
    scored = [(share(name, step), -at, step) for at, step in enumerate(steps)]
    best = max(scored, key=lambda one: one[:2], default=(0.0, 0, None))
    if kernel.own and best[0] >= 0.5:
        return best[2]
    kind = kind_of(kernel.via or kernel.name)
    same = [step for step in steps if kind in WORDS and any(word in operator.lower() for operator in step.key for word in WORDS[kind])]
    return same[0] if len(same) == 1 else None


def share(name: str, step: Step) -> float:
    words = {re.sub(r"\W+", "_", word.lower()) for word in step.key}
    return sum(word in name for word in words) / len(words) if words else 0.0


def kind_of(name: str) -> str:
    return next((kind for kind, pattern in KINDS if re.search(pattern, name, re.I)), "other kernels")


@dataclass
class Tried:
    """The outcome of one strategy on each side: the number of programs, how many of them passed, and the best speedup over eager."""

    strategy: str
    cells: list[tuple[int, int, float | None]]


def strategies_of(sides: list[Side]) -> list[Tried]:
    names = list(dict.fromkeys(one.strategy or "the first program" for side in sides for one in side.tried))
    return [Tried(name, [outcome([one for one in side.tried if (one.strategy or "the first program") == name]) for side in sides]) for name in names]


def outcome(tried: list[Candidate]) -> tuple[int, int, float | None]:
    good = [one.verification for one in tried if one.verification is not None and one.verification.status == "passed"]
    return len(tried), len(good), max((one.speedup for one in good if one.speedup is not None), default=None)
