"""The reward: a pure function of a report and a rubric, with every component recorded.

    base   = CORRECT + min(low, FASTEST) * (LAZY + (1 - LAZY) * own)        low: lower end of the interval against the best baseline
    factor = 1 + lambda * ((total - 4) / 16 - 0.5)                          total: the rubric's, 4 to 20; lambda: 1.0 and 0.7
    reward = min(base * factor, MOST), but 0 if the report did not pass or the rubric reports a major hack

Base, lambda and cap come from StitchCUDA's training (arXiv 2603.02637), which used the mean speedup over eager. The speed is multiplied by the share
of GPU time spent in the program's own kernels, because a reward for speed alone favours lazy programs, which only call library kernels cleverly. The
program's output, exception messages and names have no influence, because the texts in a report are never read. In the quick tier, eager is the only
baseline; results require the full tier.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from agents.rl.evidence import Given, Unfit, best_interval, read
from agents.rl.rubric import Before, Rubric, Skill, by_rules
from verifier.profiling.diagnosing.diagnosis import Diagnosis
from verifier.report import Report

CORRECT = 0.3
FASTEST = 5.0
LAZY = 0.2  # share of the speed that counts if the program has no kernel of its own
MOST = 3.0
LAMBDA: dict[Skill, float] = {"write": 1.0, "improve": 0.7}


@dataclass(frozen=True)
class Scored:
    """`reward` is None if the rollout is not a sample; `components["no_sample"]` is then the kind and `components["why"]` the reason."""

    reward: float | None
    components: dict[str, Any] = field(default_factory=dict)

    @property
    def is_sample(self) -> bool:
        return self.reward is not None

    def line(self) -> str:
        """Returns a single line of JSON, regardless of the contents. Raises `ValueError` for NaN and for infinite numbers."""
        return json.dumps({"reward": self.reward, **self.components}, allow_nan=False, sort_keys=True)


def score(
    given: Given,
    task_source: str,
    program_source: str,
    skill: Skill = "write",
    rubric: Rubric | None = None,
    before: Before | None = None,
    diagnosis: Diagnosis | None = None,
    plain: bool = False,
) -> Scored:
    """`given`: the verifier's answer for exactly these two sources. `rubric`: one that a language model filled in; if null, the rules fill it in.
    `plain`: reward the verdict and the speed alone, without rubric and share of own kernels."""
    try:
        report = read(given, task_source, program_source)
    except Unfit as unfit:
        return Scored(None, {"skill": skill, "no_sample": unfit.kind, "why": str(unfit)})
    return reward_of(report, skill, rubric, before, diagnosis, plain)


def reward_of(
    report: Report,
    skill: Skill = "write",
    rubric: Rubric | None = None,
    before: Before | None = None,
    diagnosis: Diagnosis | None = None,
    plain: bool = False,
) -> Scored:
    """Scores a report that `evidence.read` has accepted."""
    if rubric is not None and rubric.skill != skill:
        raise ValueError(f"a rubric of skill {rubric.skill!r} for one of {skill!r}")
    said: dict[str, Any] = {
        "skill": skill,
        "status": report.status,
        "tier": report.tier,
        "task": report.task,
        "program": report.program,
        "findings": sorted({f"{finding.severity}:{finding.rule}" for finding in report.findings}),
    }
    if report.status != "passed":
        return Scored(0.0, {**said, "gate": report.status})
    rubric = rubric or by_rules(skill, report, before, diagnosis)
    name, interval = best_interval(report)
    share = report.own_share or 0.0
    speed = min(interval.low, FASTEST)
    weight = 1.0 if plain else LAZY + (1 - LAZY) * share
    base = CORRECT + speed * weight
    factor = 1.0 if plain else 1 + LAMBDA[skill] * ((rubric.total - 4) / 16 - 0.5)
    said |= {
        "baseline": name,
        "low": interval.low,
        "speed": speed,
        "own_share": report.own_share,
        "own_weight": weight,
        "class": report.program_class,
        "base": base,
        "rubric": dict(rubric.scores),
        "rubric_by": rubric.by,
        "rubric_total": rubric.total,
        "major_hacking": rubric.major_hacking,
        "lambda": LAMBDA[skill],
        "factor": factor,
        "capped": base * factor > MOST,
    }
    if plain:
        return Scored(base, said)
    if rubric.major_hacking:
        return Scored(0.0, {**said, "gate": "major_hacking"})
    return Scored(min(base * factor, MOST), said)


def advantages(group: Sequence[Scored]) -> list[float | None]:
    """Returns each sample's reward relative to the mean of the other samples (leave one out; GRPO's own mean includes the sample itself). A rollout
    that is not a sample gets None. The whole group gets None if fewer than two samples remain or if all have the same reward, because nothing can be
    learned from such a group."""
    rewards = [one.reward for one in group if one.reward is not None]
    if len(rewards) < 2 or max(rewards) - min(rewards) < 1e-9:
        return [None] * len(group)
    total, others = sum(rewards), len(rewards) - 1
    return [None if one.reward is None else one.reward - (total - one.reward) / others for one in group]
