"""How a run is to be done: chosen by a person when it is submitted, recorded in `run.started`. Only a fork of the run has other settings."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from agents.choices.limits import LIMITS
from agents.choices.workflows import DEFAULT, Name
from verifier.report import Tier
from verifier.task import Mode, Precision

MOST_WORKERS = 16


class Budget(BaseModel):
    """Limits; null is no limit. Spending is counted in the same units."""

    candidates: int | None = LIMITS["candidates"].field()
    calls: int | None = LIMITS["calls"].field()
    tokens: int | None = LIMITS["tokens"].field()
    dollars: float | None = LIMITS["dollars"].field()
    verifier_seconds: float | None = LIMITS["verifier_seconds"].field()
    seconds: float | None = LIMITS["seconds"].field()


class Settings(BaseModel):
    workflow: Name = DEFAULT
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
