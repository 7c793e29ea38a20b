"""What `python -m verifier doctor --json` said about a device's host, as a page shows it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Check:
    """One thing that a host can have. `fix` says how to get it where it is missing."""

    name: str
    ok: bool
    found: str = ""
    fix: str = ""
    needed: bool = False  # without it nothing can be verified


@dataclass(frozen=True)
class Doctor:
    checks: list[Check] = field(default_factory=list)
    sandbox: str = ""  # "bubblewrap", "process", or "" where nothing was said
    layers: list[str] = field(default_factory=list)
    lacking: list[str] = field(default_factory=list)  # layers that this host does not offer, each with the way to get it
    facts: list[tuple[str, str]] = field(default_factory=list)

    @property
    def missing(self) -> list[Check]:
        return [check for check in self.checks if not check.ok]

    @classmethod
    def read(cls, said: dict[str, Any]) -> Doctor:
        """Takes what is there: an older verifier may say less."""
        protection = said.get("protection") or {}
        return cls(
            checks=[_check(entry) for entry in said.get("checks") or [] if isinstance(entry, dict)],
            sandbox=str(protection.get("sandbox") or ""),
            layers=[str(layer) for layer in protection.get("layers") or []],
            lacking=[str(layer) for layer in protection.get("missing") or []],
            facts=[(name, str(said[key])) for key, name in FACTS.items() if said.get(key) not in (None, "", [], {})],
        )


FACTS = {"python": "Python", "torch": "PyTorch", "cuda": "CUDA", "driver": "driver", "compiler": "compiler", "threads": "threads"}


def _check(entry: dict[str, Any]) -> Check:
    status = entry.get("status", entry.get("ok"))
    return Check(
        name=str(entry.get("name", "")),
        ok=status in (True, "ok", "passed", "available"),
        found=str(entry.get("found") or entry.get("detail") or ""),
        fix=str(entry.get("fix") or entry.get("hint") or ""),
        needed=bool(entry.get("needed") or entry.get("required")),
    )
