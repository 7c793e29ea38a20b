"""The choice of a run's roles from its settings."""

from __future__ import annotations

from agents.choices.workflows import WORKFLOWS
from agents.ports import KnownModels, ModelPort
from agents.roles.situation import Coder, Planner, Roles, VerifierRole
from agents.settings import Settings
from agents.span import Ended

# Imports within functions: forms and command lines only check whether roles can work together, and importing the compiler for the roles takes
# seconds.
BUILT_IN = "built-in"


def roles_for(settings: Settings, models: ModelPort | None = None) -> Roles:
    """Returns the roles that the settings name. An invalid combination ends the run with an explanation."""
    problem = impossible(settings, models)
    if problem:
        raise Ended("failed", problem)
    return Roles(planner_for(settings), coder_for(settings), verifier_for(settings))


def impossible(settings: Settings, models: KnownModels | None = None) -> str | None:
    """Returns the reason why these roles cannot work together here, or None if they can. Forms and command lines check this before a run is
    created."""
    for name in dict.fromkeys((settings.planner, settings.coder, settings.judge)):
        if name != BUILT_IN and (models is None or not models.known(name)):
            return f'there is no LLM profile {name!r} on this installation; use "built-in"'
    if settings.coder == BUILT_IN and settings.planner != BUILT_IN:
        return "the built-in coder prints the compiler's own plan, not a model's: name a profile as the coder too, or take the built-in planner"
    gpu = settings.device.startswith("cuda")
    if settings.language is not None and gpu != (settings.language != "cpp"):
        return "C++ is for the CPU: choose CUDA C++ or Triton on a GPU" if gpu else "CUDA C++ and Triton need a GPU: choose C++ on the CPU"
    return None


def planner_for(settings: Settings) -> Planner:
    if settings.planner == BUILT_IN:
        from agents.roles.planner import BuiltInPlanner

        return BuiltInPlanner()
    from agents.roles.llm_planner import LlmPlanner

    return LlmPlanner(settings.planner)


def coder_for(settings: Settings) -> Coder:
    if settings.coder == BUILT_IN:
        from agents.roles.coder import BuiltInCoder

        return BuiltInCoder()
    from agents.roles.llm_coder import LlmCoder

    return LlmCoder(settings.coder, pair=settings.coder_mode == "frontend+mid-end")


def verifier_for(settings: Settings) -> VerifierRole:
    if settings.judge != BUILT_IN:
        from agents.roles.llm_verifier import LlmVerifier

        return LlmVerifier(settings.judge, always=WORKFLOWS[settings.workflow].judges_all, moves=settings.coder == BUILT_IN)
    if settings.coder == BUILT_IN:
        from agents.roles.verifier import BuiltInVerifier

        return BuiltInVerifier()
    from agents.roles.rules_verifier import RulesVerifier

    return RulesVerifier()
