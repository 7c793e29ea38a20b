"""Planner, Coder and Verifier: what they hand over (`situation`), and the built-in ones over the compiler."""

from __future__ import annotations

from agents.roles.situation import Advice, Attempt, Coder, Edit, Plan, Planner, Roles, Situation, Verifier
from agents.settings import Settings
from agents.span import Ended

__all__ = ["Advice", "Attempt", "Coder", "Edit", "Plan", "Planner", "Roles", "Situation", "Verifier", "roles_for"]


def roles_for(settings: Settings) -> Roles:
    """The roles that the settings name; a profile that is not configured ends the run with its name."""
    for name in (settings.planner, settings.coder):
        if name != "built-in":
            raise Ended("failed", f'there is no LLM profile {name!r} on this installation; use "built-in"')
    from agents.roles.coder import BuiltInCoder
    from agents.roles.planner import BuiltInPlanner
    from agents.roles.verifier import BuiltInVerifier

    return Roles(BuiltInPlanner(), BuiltInCoder(), BuiltInVerifier())
