"""The settings of a run. A person chooses them at submission, and they are recorded in `run.started`. They can change only in a fork of the run."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from agents.choices.limits import LIMITS
from agents.choices.workflows import DEFAULT, Name
from verifier.report import Tier
from verifier.task import Mode, Precision

MOST_WORKERS = 16


class Budget(BaseModel):
    """The limits of a run; None means no limit. Spending is counted in the same units."""

    candidates: int | None = LIMITS["candidates"].field()
    calls: int | None = LIMITS["calls"].field()
    tokens: int | None = LIMITS["tokens"].field()
    dollars: float | None = LIMITS["dollars"].field()
    verifier_seconds: float | None = LIMITS["verifier_seconds"].field()
    seconds: float | None = LIMITS["seconds"].field()


class Settings(BaseModel):
    workflow: Name = DEFAULT
    planner: str = "built-in"  # or the name of a model profile
    coder: str = "built-in"
    coder_mode: Literal["one", "frontend+mid-end"] = "one"  # for a model: a single agent, or one agent for correctness and one for tuning
    judge: str = "built-in"  # the Verifier agent
    first_program: Literal["coder", "built-in"] = "coder"  # built-in: a model improves the compiler's program instead of starting with its own
    language: Literal["cuda", "triton", "cpp"] | None = None  # language of the program; None: CUDA C++ on a GPU, C++ on the CPU
    device: str = "cpu"  # "cpu", "cuda", or one device such as "cuda:0"
    precision: Precision = "fp32-strict"
    mode: Mode = "train"
    target: float | None = Field(default=None, gt=0)  # stop when the lower bound of the speedup over eager reaches this value
    tier: Tier = "full"  # tier used by the "verify" workflow; "quick" compares the program only with eager and does not count as a result
    workers: int = Field(default=4, ge=1, le=MOST_WORKERS)  # programs written and verified concurrently, in workflows that support it
    profiles: Literal["all", "winner", "none"] = "all"  # profile the reference and every program that passed, or only the winner, or nothing
    winner: Literal["fastest", "own-kernels"] = "fastest"  # own-kernels: the fastest program in the custom or mixed class, if one passed
    review_plan: bool = False  # wait after the first plan until a person has reviewed it
    budget: Budget = Budget()
    seed: int = 0
