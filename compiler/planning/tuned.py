"""Knob values from earlier tuning, and the fingerprints that identify kernels."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.options import Options
from compiler.planning.plan import CompilerPlan
from compiler.program.forward import Forward
from compiler.program.task_text import TaskText
from verifier.source import sha256


def fingerprints(plan: CompilerPlan, task_source: str, options: Options) -> dict[str, str]:
    """Returns a fingerprint for each of our own groups: the hash of its kernel's text, printed with the same strategies but with default knob
    values."""
    if plan.graph is None or not plan.own:
        return {}
    plain = options.model_copy(update={"knobs": {}, "group_knobs": {}})
    forward = Forward(plan, TaskText.of(task_source, plan.graph), plain)
    forward.text()
    hashes = {name: sha256(body) for body, name in forward.bodies.items()}
    return {group: hashes[name] for name, groups in forward.groups_of.items() if name in hashes for group in groups}


def with_tuned(options: Options, kernels: Mapping[str, str], tuned: Mapping[str, Mapping[str, int]]) -> Options:
    """Returns the options with the knob values known for these kernels (group -> fingerprint)."""
    for group, kernel in kernels.items():
        for name, value in tuned.get(kernel, {}).items():
            options = options.with_knob(name, value, group)
    return options


def tuned_by(options: Options, kernels: Mapping[str, str]) -> dict[str, dict[str, int]]:
    """Returns the knob values that the options set for each kernel, keyed by fingerprint."""
    return {kernels[group]: dict(numbers) for group, numbers in options.group_knobs.items() if numbers and group in kernels}
