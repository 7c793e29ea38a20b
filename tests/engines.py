"""An engine for tests, with the workflow and the roles that its settings name unless they are given explicitly."""

from __future__ import annotations

from typing import Any

from agents.ports import Journal, VerifierPort
from agents.roles import casting
from agents.run import Engine
from agents.settings import Settings
from agents.workflows import FUNCTIONS


def engine_of(journal: Journal, verifier: VerifierPort, settings: Settings, source: str, name: str, **more: Any) -> Engine:
    workflow, roles = more.pop("workflow", None), more.pop("roles", None)
    return Engine(journal, verifier, settings, source, name, workflow or FUNCTIONS[settings.workflow], roles or casting.roles_for, **more)
