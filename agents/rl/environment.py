"""Provides the verifier as a reinforcement-learning environment. An episode presents a task, accepts programs, and responds to each with a reward,
its components, and feedback as text.

A single-turn episode trains one skill. Several turns form the product's loop: program, diagnosis, better program.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from agents.diagnosis import Diagnosis, diagnose
from agents.rl.data.rows import feedback
from agents.rl.judging import Fill
from agents.rl.pool import Pool
from agents.rl.prompts import LONGEST_FEEDBACK, program_in, prompt_of
from agents.rl.reward import Scored, reward_of, score
from agents.rl.rubric import Before, Skill
from agents.roles.compiled import ceilings_of
from compiler import DeviceFigures
from verifier.integrity.static import inspect_source
from verifier.jobs import CaptureJob, ProfileJob, VerifyJob
from verifier.program import Program
from verifier.report import Report, Tier
from verifier.source import SourceError, parse
from verifier.task import Mode, Precision

LONGEST_PROGRAM = 1 << 18  # characters


class Problem(BaseModel):
    """A task and, for skill 2, the initial program with the verifier's report on it. Without a program, the task is scored as skill 1."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    task: str
    skill: Skill = "write"
    before: str = ""
    report: Report | None = None
    diagnosis: Diagnosis | None = None
    feedback: str = ""

    def prompt(self) -> str:
        return prompt_of(self.task, self.before if self.skill == "improve" else None, self.feedback)


class Observation(BaseModel):
    """The result of `reset` and `step`. `reward` is None until the first program has been judged, and always None if the rollout is not a sample."""

    model_config = ConfigDict(extra="forbid")

    episode_id: str
    problem: str
    prompt: str = ""  # prompt for the next turn; empty if the episode is over
    turn: int = 0
    done: bool = False
    reward: float | None = None
    status: str = ""
    no_sample: str = ""  # why there is no reward: "timeout", "busy", "infrastructure", ...
    rubric: dict[str, int] = Field(default_factory=dict)  # scores, keyed by criterion
    components: dict[str, Any] = Field(default_factory=dict)
    feedback: str = ""


class Action(BaseModel):
    """`program`: a complete source. `reply`: a model's reply in place of a program; its last fenced block is the program."""

    model_config = ConfigDict(extra="forbid")

    program: str | None = None
    reply: str | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)

    def source(self) -> str:
        """Returns the program's source. Raises `BadAction`."""
        if (self.program is None) == (self.reply is None):
            raise BadAction("an action contains either `program` or `reply`")
        found = self.program if self.program is not None else program_in(self.reply or "")
        if len(found) > LONGEST_PROGRAM:
            raise BadAction(f"a program has at most {LONGEST_PROGRAM} characters")
        return found


class BadAction(ValueError):
    """Raised if a request cannot be carried out. The message says why. Such a request does not count as a step."""


@dataclass(frozen=True)
class Conditions:
    """The settings used to judge every program."""

    turns: int = 1
    tier: Tier = "quick"
    precision: Precision = "fp32-strict"
    mode: Mode = "train"
    reward: Literal["full", "verdict"] = "full"  # verdict: without rubric and share of own kernels
    profile: bool = False  # profile programs that pass between turns, and add their diagnosis to the next prompt


class Environment:
    """Problems and a pool of verifiers. An instance is bound to one event loop and supports any number of concurrent episodes."""

    def __init__(self, problems: Sequence[Problem], pool: Pool, conditions: Conditions | None = None, rubric: Fill | None = None):
        if not problems or len({problem.id for problem in problems}) != len(problems):
            raise ValueError("an environment needs problems, each with a unique id")
        self.problems = {problem.id: problem for problem in problems}
        self.pool, self.conditions, self.rubric = pool, conditions or Conditions(), rubric
        self.device: DeviceFigures | None = None
        self._captured: dict[str, tuple[int | None, int | None]] = {}  # minimum bytes and operations of each task, keyed by its source

    def choose(self, seed: int | None = None, problem: str | None = None) -> Problem:
        """Chooses a problem. The same seed always chooses the same one. Raises `BadAction` for an unknown id."""
        if problem is not None:
            if problem not in self.problems:
                raise BadAction(f"there is no problem {problem[:80]!r}")
            return self.problems[problem]
        names = list(self.problems)
        return self.problems[names[random.Random(seed).randrange(len(names))]]

    async def judge(self, task: str, program: str, skill: Skill = "write", before: Before | None = None) -> tuple[Scored, Report | None]:
        """Returns the reward of one program. The cheapest checks come first: whether it is a program at all, and whether its text rules it out. The
        judge then decides whether it builds, whether it is correct, and how fast it is. Raises `Full`."""
        refused = refusal(program)
        if refused is not None:
            return Scored(0.0, {"skill": skill, "status": "rejected", "gate": "rejected", "stage": "static", "why": refused}), None
        c = self.conditions
        job = VerifyJob(task_source=task, program_source=program, tier=c.tier, precision=c.precision, mode=c.mode)
        result = await self.pool.run(job)
        scored = score(result, task, program, skill, before=before, plain=c.reward == "verdict")
        if self.rubric is not None and c.reward == "full" and scored.components.get("status") == "passed" and result.report is not None:
            scored = reward_of(result.report, skill, await self.rubric(skill, task, program, result.report, before, None), before)
        return scored, result.report

    async def diagnosis(self, task: str, program: str, report: Report) -> Diagnosis | None:
        """Diagnoses a program that passed, using its profile. Returns None if the task could not be captured."""
        if self.device is None:
            client: Any = self.pool.clients[0]
            self.device = DeviceFigures.of({**(await client.ready()).model_dump(mode="json"), **await client.figures()})
        c = self.conditions
        profiled = await self.pool.run(ProfileJob(task_source=task, program_source=program, precision=c.precision, mode=c.mode))
        if task not in self._captured:
            captured = (await self.pool.run(CaptureJob(task_source=task, precision=c.precision, mode=c.mode))).capture
            if captured is None:
                return None
            self._captured[task] = captured.bytes_min, captured.flops
        bytes_min, flops = self._captured[task]
        ceilings = ceilings_of(self.device, report.precision)
        return diagnose(report, profiled.profile, ceilings, bytes_min=bytes_min, flops=flops, floor_ms=report.floor_ms)


@dataclass
class Episode:
    """One episode's state. Its steps are sequential."""

    environment: Environment
    problem: Problem
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    turn: int = 0
    done: bool = False
    rewards: list[float | None] = field(default_factory=list)
    _before: Before | None = None
    _prompt: str = ""
    _busy: bool = False

    def __post_init__(self) -> None:
        known = self.problem.report
        self._before = Before(known, self.problem.diagnosis) if known is not None else None
        self._prompt = self.problem.prompt()

    @property
    def skill(self) -> Skill:
        return "improve" if self._before is not None else "write"

    def begin(self) -> Observation:
        return Observation(episode_id=self.id, problem=self.problem.id, prompt=self._prompt)

    def state(self) -> dict[str, Any]:
        return {"episode_id": self.id, "step_count": self.turn, "problem": self.problem.id, "done": self.done, "rewards": self.rewards}

    async def step(self, action: Action) -> Observation:
        """Takes a step. Raises `BadAction` for an invalid step, and `Full` if the pool has no free slot; in that case the turn is still pending."""
        if self.done:
            raise BadAction("the episode is over: reset")
        if self._busy:
            raise BadAction("this episode's last step has not finished yet")
        source = action.source()
        self._busy = True
        try:
            return await self._step(source)
        finally:
            self._busy = False

    async def _step(self, source: str) -> Observation:
        task = self.problem.task
        skill, before = self.skill, self._before
        scored, report = await self.environment.judge(task, source, skill, before)
        self.turn += 1
        self.rewards.append(scored.reward)
        self.done = self.turn >= self.environment.conditions.turns or not scored.is_sample
        told = feedback(report) if report is not None else str(scored.components.get("why", ""))
        diagnosis = None
        if not self.done and report is not None:
            if report.status == "passed" and self.environment.conditions.profile:
                diagnosis = await self.environment.diagnosis(task, source, report)
                told = f"{told}\n{diagnosis.says()}".strip() if diagnosis is not None else told
            self._before = Before(report, diagnosis)
        if not self.done:
            self._prompt = prompt_of(task, source, told or "It passed.")
        return Observation(
            episode_id=self.id,
            problem=self.problem.id,
            prompt="" if self.done else self._prompt,
            turn=self.turn,
            done=self.done,
            reward=scored.reward,
            status=report.status if report is not None else str(scored.components.get("status", "")),
            no_sample=str(scored.components.get("no_sample", "")),
            rubric=dict(scored.components.get("rubric", {})),
            components=scored.components,
            feedback=told[:LONGEST_FEEDBACK],
        )


def refusal(program: str) -> str | None:
    """Returns the reason for refusing a text without spending verifier time, or None if it is not refused. The text is parsed but never run."""
    try:
        Program.read(program)
        found = next((f for f in inspect_source(parse(program), program) if f.severity == "refuse"), None)
    except SourceError as error:
        return str(error)[:500]
    except (RecursionError, MemoryError, ValueError):
        return "it cannot be read as Python"
    return f"line {found.line}: {found.rule}: {found.message}" if found is not None else None


def problems_of(rows: Sequence[Any]) -> list[Problem]:
    """Creates problems from a data set's rows: one for each task of skill 1 and one for each program to be improved in skill 2."""
    found: dict[str, Problem] = {}
    for row in rows:
        if row.skill == "write":
            found.setdefault(f"write-{row.task_sha[:16]}", Problem(id=f"write-{row.task_sha[:16]}", task=row.task))
        else:
            told = "\n".join(part for part in (f"Status: {row.status_before}.", row.feedback, row.diagnosis_before) if part)
            key = f"improve-{row.task_sha[:12]}-{row.before_sha[:12]}"
            report = Report.model_validate_json(row.report_before)
            diagnosis = Diagnosis.model_validate_json(row.diagnosis_before) if row.diagnosis_before else None
            known = Problem(id=key, task=row.task, skill="improve", before=row.before, report=report, diagnosis=diagnosis, feedback=told)
            found.setdefault(key, known)
    return list(found.values())


def problems_in(sources: Mapping[str, str]) -> list[Problem]:
    """Returns skill-1 problems from task sources keyed by name."""
    return [Problem(id=name, task=source) for name, source in sources.items()]
