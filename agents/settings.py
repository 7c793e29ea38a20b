"""How a run is to be done: chosen by a person when it is submitted, recorded in `run.started`, never changed afterwards."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from verifier.task import Mode, Precision


class Budget(BaseModel):
    """Limits; null is no limit. Spending is counted in the same units."""

    candidates: int | None = Field(default=8, ge=1)  # programs proposed
    calls: int | None = Field(default=None, ge=0)  # LLM calls
    tokens: int | None = Field(default=None, ge=0)
    dollars: float | None = Field(default=None, ge=0)
    verifier_seconds: float | None = Field(default=600.0, gt=0)
    seconds: float | None = Field(default=1800.0, gt=0)


class Settings(BaseModel):
    workflow: Literal["stitch", "verify", "forge", "pilot", "branch", "descend", "random"] = "stitch"
    planner: str = "built-in"  # or the name of an LLM profile
    coder: str = "built-in"
    judge: str = "built-in"  # the Verifier's agent
    language: Literal["cuda", "triton", "cpp"] | None = None  # of the program; null: CUDA C++ on a GPU, C++ on the CPU
    device: str = "cpu"  # "cpu", "cuda", or one device such as "cuda:0"
    precision: Precision = "fp32-strict"
    mode: Mode = "train"
    target: float | None = Field(default=None, gt=0)  # stop at this lower bound of the speedup against eager
    budget: Budget = Budget()
    seed: int = 0
