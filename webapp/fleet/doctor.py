"""The output of `python -m verifier doctor --json` for a device's host, prepared for a page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Check:
    """A feature that a host may have. `fix` explains how to get it if it is missing."""

    name: str
    ok: bool
    found: str = ""
    fix: str = ""
    use: str = ""  # its purpose
    needed: bool = False  # whether verification is impossible without it


@dataclass(frozen=True)
class Doctor:
    checks: list[Check] = field(default_factory=list)
    sandbox: str = ""  # "bubblewrap", "process", or "" if not reported
    layers: list[str] = field(default_factory=list)
    lacking: list[str] = field(default_factory=list)  # sandbox layers that this host does not offer, each with the way to get it
    facts: list[tuple[str, str]] = field(default_factory=list)
    unusable: str = ""  # why its device cannot be used; "" if it can
    problems: list[dict[str, str]] = field(default_factory=list)  # problems of its device: message, hint

    @property
    def missing(self) -> list[Check]:
        return [check for check in self.checks if not check.ok]

    @classmethod
    def read(cls, said: dict[str, Any], name: str = "") -> Doctor:
        """Reads the fields that are present, because an older verifier may report fewer. `name` is the device's name, such as "cuda:0"."""
        protection = said.get("protection") or {}
        return cls(
            checks=[_check(entry) for entry in said.get("checks") or [] if isinstance(entry, dict)],
            sandbox=str(protection.get("sandbox") or ""),
            layers=[str(layer) for layer in protection.get("layers") or []],
            lacking=[str(layer) for layer in protection.get("missing") or []],
            facts=[(name, show(said[key])) for key, (name, show) in FACTS.items() if said.get(key) not in (None, "", [], {})],
            unusable=str(said.get("unusable") or ""),
            problems=[problem for device in said.get("devices") or [] if device.get("device") == name for problem in device.get("problems") or []],
        )


def _round(unit: str) -> Callable[[float], str]:
    return lambda value: f"{float(value):,.0f} {unit}"


def _gib(value: float) -> str:
    return f"{float(value) / 2**30:.1f} GiB"


# Key in the doctor's JSON or in the announced environment: (label, how to show it).
FACTS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "compiler": ("Compiler", str),
    "torch": ("PyTorch", str),
    "python": ("Python", str),
    "cuda": ("CUDA", str),
    "driver": ("Driver", str),
    "capability": ("Compute capability", str),
    "threads": ("Threads", lambda value: f"{float(value):.0f}"),
    "multiprocessors": ("Multiprocessors", lambda value: f"{float(value):.0f}"),
    "memory_bytes": ("Memory", _gib),
    "bandwidth_gbs": ("Bandwidth", _round("GB/s")),
    "fp32_gflops": ("fp32 peak", _round("GFLOP/s")),
}


def _check(entry: dict[str, Any]) -> Check:
    status = entry.get("status", entry.get("ok"))
    return Check(
        name=str(entry.get("name", "")),
        ok=status in (True, "ok", "passed", "available"),
        found=str(entry.get("found") or entry.get("detail") or ""),
        fix=str(entry.get("fix") or entry.get("hint") or ""),
        use=str(entry.get("for") or ""),
        needed=bool(entry.get("needed") or entry.get("required")),
    )
