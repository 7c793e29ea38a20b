"""How a run is to be done: chosen by a person when it is submitted, recorded in `run.started`. Only a fork of the run has other settings."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from verifier.report import Tier
from verifier.task import Mode, Precision

MOST_WORKERS = 16
PARALLEL = ("branch", "pilot")  # workflows that go several ways at once


class Budget(BaseModel):
    """Limits; null is no limit. Spending is counted in the same units."""

    candidates: int | None = Field(default=8, ge=1)  # programs proposed
    calls: int | None = Field(default=None, ge=0)  # LLM calls
    tokens: int | None = Field(default=None, ge=0)
    dollars: float | None = Field(default=None, ge=0)
    verifier_seconds: float | None = Field(default=600.0, gt=0)
    seconds: float | None = Field(default=1800.0, gt=0)


class Settings(BaseModel):
    workflow: Literal["stitch", "forge", "pilot", "branch", "descend", "random", "verify"] = "stitch"
    planner: str = "built-in"  # or the name of an LLM profile
    coder: str = "built-in"
    coder_mode: Literal["one", "frontend+mid-end"] = "one"  # of a model: one agent, or one that gets the program right and one that only tunes
    judge: str = "built-in"  # the Verifier's agent
    language: Literal["cuda", "triton", "cpp"] | None = None  # of the program; null: CUDA C++ on a GPU, C++ on the CPU
    device: str = "cpu"  # "cpu", "cuda", or one device such as "cuda:0"
    precision: Precision = "fp32-strict"
    mode: Mode = "train"
    target: float | None = Field(default=None, gt=0)  # stop at this lower bound of the speedup against eager
    tier: Tier = "full"  # of workflow "verify"; "quick" measures against eager alone, and is no result
    workers: int = Field(default=4, ge=1, le=MOST_WORKERS)  # programs written and verified side by side, by workflows that can
    profiles: Literal["all", "winner", "none"] = "all"  # of the reference and of every program that passed; or what the verdicts observed will do
    winner: Literal["fastest", "own-kernels"] = "fastest"  # own-kernels: of class custom or mixed, where such a program passed
    review_plan: bool = False  # wait after the first plan until a person has read it
    budget: Budget = Budget()
    seed: int = 0


SEARCHES = {  # workflows to choose from, each in a sentence; "verify" measures a person's own program
    "stitch": "Plan, code step by step, verify, profile, diagnose, answer the diagnosis; re-plan where that does not help (StitchCUDA).",
    "forge": "One correction or one optimisation a round, with only the latest program and judgement in view (CudaForge).",
    "pilot": "A population of strategies: crossed as strategies, translated to code, revised, aligned with what survived (cuPilot).",
    "branch": "Many ideas at once, the best four go on, broken programs get at most five repairs (PIKE).",
    "descend": "No model: the compiler's program, its numbers tuned one coordinate after the other.",
    "random": "No model and no judgement: choices of the compiler drawn at random, to compare the others with.",
}
