"""Numbers that were found for a kernel before, and how the kernel is known again."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.options import Options
from compiler.planning.plan import CompilerPlan
from compiler.program.forward import Forward
from compiler.program.task_text import TaskText
from verifier.source import sha256


def fingerprints(plan: CompilerPlan, task_source: str, options: Options) -> dict[str, str]:
    """For each own group the hash of its kernel's text as the compiler prints it by itself: the same strategies, no number chosen."""
    if plan.graph is None or not plan.own:
        return {}
    plain = options.model_copy(update={"knobs": {}, "group_knobs": {}})
    forward = Forward(plan, TaskText.of(task_source, plan.graph), plain)
    forward.text()
    hashes = {name: sha256(body) for body, name in forward.bodies.items()}
    return {group: hashes[name] for name, groups in forward.groups_of.items() if name in hashes for group in groups}


def with_tuned(options: Options, kernels: Mapping[str, str], tuned: Mapping[str, Mapping[str, int]]) -> Options:
    """The options with the numbers that are known for these kernels (group: fingerprint)."""
    for group, kernel in kernels.items():
        for name, value in tuned.get(kernel, {}).items():
            options = options.with_knob(name, value, group)
    return options


def tuned_by(options: Options, kernels: Mapping[str, str]) -> dict[str, dict[str, int]]:
    """What the options chose for kernels: fingerprint to numbers."""
    return {kernels[group]: dict(numbers) for group, numbers in options.group_knobs.items() if numbers and group in kernels}
