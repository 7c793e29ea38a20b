"""Describes the known facts briefly enough for a model to use. Figures are summarised, raw counters are left out, and evidence includes its
location."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from agents.floor import UNITS, faster, fastest, floor_of_group, floor_of_step, floor_of_task, size, steps_text
from agents.ports import Passage
from agents.roles.compiled import Compiled
from agents.roles.edits import folded
from agents.roles.group_rows import group_rows
from agents.roles.measured import eager_text, step_floor, verdict_text
from agents.roles.prompts import fenced
from agents.roles.shortening import Shortened, shortened
from agents.roles.situation import Attempt, Idea, Situation
from agents.settings import Settings
from agents.strategies import CATALOGUE, Facts, Strategy, by_name
from compiler import Group
from compiler.graph.network import Network
from compiler.graph.values import refs
from compiler.planning.cost import duration
from verifier.profiling.diagnosing.task_facts import task_facts
from verifier.profiling.own_kernels import base_name
from verifier.task import Admission, TensorSpec

MOST_GROUPS = 24  # maximum number of groups, or of kinds of equal groups
MOST_KINDS = 20  # maximum number of operators listed for a group in the floors
EXPLAINED = 8  # maximum number of operators listed to describe what a group computes
FEW = 8  # maximum number of names listed in full
FEW_VALUES = 8  # maximum number of values over which a batch norm counts as one that amplifies rounding
LANGUAGES = {"cuda": "CUDA C++", "triton": "Triton", "cpp": "C++ with OpenMP, on the CPU"}
NOT_CAPTURED = "the model could not be captured"  # in the header of a program that the compiler left to PyTorch
MODES = {
    "train": "train: the model as its constructor leaves it, in training mode; batch norm takes the batch's statistics, dropout with p > 0 drops",
    "eval": "eval: `model.eval()` was called; batch norm takes the running statistics, dropout drops nothing",
}
FLAGS = {
    "trivial": "trivial: a guess without the work (zeros, a mean, an input as it is) comes within the bound, so its result stays out of rankings",
    "stochastic": "stochastic: its results depend on random numbers, which have to be PyTorch's",
}
# Patterns of words in a step's contract, each with the strategies whose how-to contradicts such a contract.
CONTRADICTED: tuple[tuple[str, frozenset[str]], ...] = (
    (r"\b(?:no|without|never)\b[^.;]*\b(?:cuda )?graphs?\b", frozenset({"cuda-graph"})),
    (
        r"\b(?:no|without|never)\b[^.;]*\batomics?\b|\bbit(?:wise|[ -]by[ -]bit| for bit)|\bdeterministic",
        frozenset({"split-k", "privatise-atomics", "atomic-sums"}),
    ),
    (r"\bone kernel\b|\bsingle kernel\b|\bone launch\b|\bsingle launch\b", frozenset({"kernel-fission", "leave-to-library", "fuse-matmul-tail"})),
    (r"\bchannels[ -]first\b|\bNCHW\b|\bcontiguous\b", frozenset({"channels-last"})),
    (r"\b(?:no|without|never)\b[^.;]*\btensor cores?\b|\bfp32 units\b", frozenset({"split-product", "half-product", "reduced-precision"})),
    (r"\b(?:no|without|never)\b[^.;]*\b(?:workspace|scratch)\b", frozenset({"split-k", "parallel-split", "reuse-workspace"})),
    (r"\b(?:no|without|never)\b[^.;]*\bcooperative\b", frozenset({"cooperative-kernel", "persistent-recurrence"})),
)
OF_SPACES = {  # for each space, the strategies whose how-to applies only to a different space
    "own kernel": frozenset({"leave-to-library", "library-variant", "channels-last"}),
    "library": frozenset(
        {"register-blocking", "tile-reuse", "split-product", "half-product", "swizzle-blocks", "warp-roles", "tma-copies", "own-matvec"}
    ),
}


def language_of(settings: Settings) -> str:
    return settings.language or ("cuda" if settings.device.startswith("cuda") else "cpp")


def task_text(situation: Situation) -> str:
    settings = situation.settings
    lines = [
        f"Name: {situation.task_name}",
        f"Target language: {language_of(settings)} ({LANGUAGES[language_of(settings)]})",
        f"Device: {'cuda' if settings.device.startswith('cuda') else 'cpu'}",
        f"Precision policy: {settings.precision}",
        f"Mode: {MODES.get(settings.mode, settings.mode)}. Only forward is called, checked and timed; no gradients are requested.",
    ]
    admission = situation.admission
    if admission is not None:
        shapes = [f"{i.dtype}[{', '.join(map(str, i.shape))}]" if isinstance(i, TensorSpec) else str(i) for i in admission.inputs]
        lines.append(f"Inputs: {', '.join(shapes)[:1000] or 'none'}")
        lines.append(f"Parameters: {admission.parameters or 0:,}")
        lines += [f"Flag: {FLAGS.get(flag, flag)}" for flag in admission.flags]
        lines += [*group_rows(situation.capture), *own_error(admission, situation)]
    known = [a.report.environment for a in situation.attempts if a.report is not None]
    if known and known[-1].compiler:
        lines.append(f"Built with: {known[-1].compiler}{f', CUDA {known[-1].cuda}' if known[-1].cuda else ''}, PyTorch {known[-1].torch}")
    if settings.target is not None:
        lines.append(f"Target: {settings.target:g}x over eager PyTorch")
    if eager := eager_text(situation):
        lines.append(eager)
    return "\n".join(lines)


def own_error(admission: Admission, situation: Situation | None = None) -> list[str]:
    """Returns a line with PyTorch's own error on the task's inputs and the resulting bound, before any program exists. If PyTorch itself is far from
    fp64, the line says that and what follows from it."""
    if admission.eager_error is None or admission.error_bound is None:
        return [chaos_text(situation)] if far_from_fp64(admission) else []
    said = (
        f"PyTorch's own error against fp64, with the task's inputs: {admission.eager_error:.2g}. So a program may err by {admission.error_bound:.2g} "
        "there, or more where plain arithmetic does"
    )
    if admission.decided is not None:
        share = f"{100 * admission.decided:.2g} % of an output's" if admission.decided else "no"
        said += f"; rounding decides {share} elements otherwise in PyTorch than in fp64"
    return [f"{said}."]


def far_from_fp64(admission: Admission) -> bool:
    """Returns whether fp64 was computed (only then is it known how many elements rounding decides) and no floating output of PyTorch came near it."""
    floating = any("float" in spec.dtype for spec in admission.outputs)
    return admission.decided is not None and admission.eager_error is None and floating


def chaos_text(situation: Situation | None) -> str:
    """Says that rounding is amplified on the way to the outputs, by which batch norms if any take statistics over few values, and what helps."""
    facts = task_facts(situation.capture) if situation is not None and situation.capture is not None and situation.settings.mode == "train" else None
    rows = facts.structure.rows or [] if facts is not None and facts.structure is not None else []
    few = min((row.length for row in rows if row.kind == "batch_norm" and 1 < row.length <= FEW_VALUES), default=0)
    where = f": a batch norm over {few} values a channel divides by their spread, which may be as small as its rounding" if few else ""
    return (
        f"PyTorch's own error against fp64 is over 1 % with the task's inputs: rounding is amplified on the way{where}. So the result is compared "
        "with eager PyTorch's own, or within what plain arithmetic errs. Stay close to eager's order of arithmetic: keep "
        "`(x - mean) * invstd * weight + bias` in a batch norm (no folded scale and shift, accurate moments), and change no rounding that a step "
        "does not need to change."
    )


def reference_text(situation: Situation) -> str:
    """Returns the task's source. If the model uses classes from a library, includes their code as installed on the verifier's host."""
    library = situation.capture.library if situation.capture is not None else {}
    told = [f"\nLibrary code that it uses, `{name}`:\n\n{fenced(source, 'python')}" for name, source in library.items()]
    return "\n".join([fenced(situation.task_source, "python"), *told])


def floors_text(compiled: Compiled, situation: Situation) -> str:
    """Returns the minimum cost of each operator group when fused, and the amount of data that it moves when its operators run separately."""
    plan, capture = compiled.plan, situation.capture
    lines = []
    if capture is not None and (capture.bytes_min or capture.flops):
        lines.append(f"The whole task, fused into one pass: {floor_of_task(compiled, capture).says()}.")
        lines.append(
            "A floor is the longer of two times: bytes at the device's bandwidth, each value read and written once, and operations in this "
            f"arithmetic: {UNITS[fastest(compiled.figures, plan.precision)]}{faster(compiled.figures, plan.precision)}. What lies between "
            "groups travels through memory in the groups' floors and not in the whole task's, which is why theirs add up to more; a weight "
            "that several groups read counts in each of them."
        )
    if not plan.groups:
        why = plan.reason or (capture.reason if capture else "") or "there is no graph"
        lines.append(f"No floors by operator: {why}.")
    if any("grouped product" in group.kinds for group in plan.groups):
        lines.append(
            "A loop over groups (experts) in the reference is shown here as operators that do the same: routing orders the rows by group, a grouped "
            "product multiplies each row by its group's weights, and an index, a division and a sum at an index fetch, assign and return rows."
        )
    if capture is not None and (facts := task_facts(capture)).dependent_steps:
        lines.append(steps_text(facts.dependent_steps, facts.exchanges, compiled.figures, facts.step_rows))
    alike: dict[str, list[Group]] = {}
    waiting = chained(compiled)
    for group in plan.groups:
        apart = f"; {size(group.eager_bytes)} move where each operator stands alone" if group.eager_bytes > 1.1 * group.bytes else ""
        floor = floor_of_group(compiled, group).says(brief=True) if group.kinds != ["getitem"] else "one result of several, which moves nothing"
        place = "Each needs the one before." if group.id in waiting else f"Natural space: {group.space}."  # alone, a link of a chain has none
        alike.setdefault(f"{kinds_text(group.kinds)}: {floor}{apart}. {place}", []).append(group)
    for said, groups in list(alike.items())[:MOST_GROUPS]:
        where = f", line {groups[0].line}" if groups[0].line else ""
        each = ", each" if len(groups) > 1 else ""
        lines.append(f"- {ids([group.id for group in groups])}{where}{each}: {said}")
    if more := sum(len(groups) for groups in list(alike.values())[MOST_GROUPS:]):
        lines.append(f"- and {more} more groups")
    return "\n".join(lines)


def kinds_text(kinds: Sequence[str]) -> str:
    """Returns the kinds of a group's operators. If the list is long, those of one pass of an unrolled loop stand once, with the number of passes;
    otherwise, the number of those that are left out follows."""
    if len(kinds) > MOST_KINDS and (length := pass_of(kinds)):
        passes = len(kinds) // length
        rest = f", then {', '.join(kinds[passes * length :])}" if len(kinds) % length else ""
        return f"{passes} times ({', '.join(kinds[:length])}){rest}"
    more = f" and {len(kinds) - MOST_KINDS} more" if len(kinds) > MOST_KINDS else ""
    return f"{', '.join(kinds[:MOST_KINDS])}{more}"


def pass_of(kinds: Sequence[str]) -> int:
    """Returns the number of operators in one pass of a loop if the list repeats them to its end, except for less than a pass that follows, or 0."""
    for length in range(1, min(MOST_KINDS, len(kinds) // 2) + 1):
        whole = len(kinds) // length * length
        if all(kinds[at] == kinds[at - length] for at in range(length, whole)):
            return length
    return 0


def chained(compiled: Compiled) -> set[str]:
    """Returns the ids of the groups in chains of equal groups, each of which needs the result of the previous one, like the products that update a
    recurrence's state. Equal groups that depend only on inputs are left out."""
    plan = compiled.plan
    if plan.graph is None:
        return set()
    network, found = Network(plan.graph), set[str]()
    owner = {name: group for group in plan.groups for name in group.operators}
    behind: dict[str, dict[str, str]] = {}  # value -> kind of group that it depends on -> the last such group
    for node in network.nodes.values():
        group, mine = owner.get(node.name), dict[str, str]()
        for name in refs([node.args, list(node.kwargs.values())]):
            mine |= behind.get(name, {})
        if group is not None:
            kind = f"{group.kinds} {group.bytes} {group.flops}"
            if mine.get(kind, group.id) != group.id:
                found |= {group.id, mine[kind]}
            mine[kind] = group.id
        behind[node.name] = mine
    return found


def ids(names: Sequence[str]) -> str:
    """Returns group ids as a list, or as a range with a step if there are many evenly spaced ids."""
    numbers = [int(name[1:]) if name[1:].isdigit() else -1 for name in names]
    steps = {after - before for before, after in itertools.pairwise(numbers)}
    if len(names) <= FEW or -1 in numbers or len(steps) != 1:
        return some(names)
    [step] = steps
    return f"{names[0]}-{names[-1]}" + (f" every {step}" if step > 1 else "")


def some(names: Sequence[str]) -> str:
    """Returns the names as a list; if there are many, only the first few and the number of the others."""
    if len(names) <= FEW:
        return ", ".join(names)
    return f"{', '.join(names[: FEW - 1])} and {len(names) - FEW + 1} more"


def catalogue_for(facts: Facts, language: str, operators: Collection[str] | None = None, *, written: bool = False) -> list[Strategy]:
    """Returns the strategies that may be planned, which are those that apply to the device, the language and the task's `operators` and are not
    forbidden. Strategies that cure a fault are left out until that fault has been found. Those that repair a kernel are left out until a program has
    been `written`."""
    seen = set(facts.faults)
    fitting = [s for s in CATALOGUE if (not s.only_cures or seen.intersection(s.cures)) and (written or not s.mends)]
    fitting = [s for s in fitting if getattr(s, language) and s.refuses(facts) is None]
    return [s for s in fitting if s.meets(operators)]


def catalogue_text(strategies: Iterable[Strategy]) -> str:
    return "\n".join(f"- `{s.name}`: {s.title}. When: {s.applies}. Brings: {s.expectation}. Not for: {s.forbidden}." for s in strategies)


def how_to_text(strategies: Iterable[Strategy], language: str, step: dict[str, Any] | None = None, order: str = "") -> str:
    """Returns the instructions for these strategies, without those that contradict the step's contract or space, or the Verifier agent's `order`."""
    fitting = [s for s in strategies if not contradicts(s, step, order)]
    return "\n".join(f"- {s.name}: {how}." for s in fitting if (how := str(getattr(s, language)).rstrip(".")))


def contradicts(strategy: Strategy, step: dict[str, Any] | None, order: str = "") -> bool:
    """Returns whether a strategy's how-to contradicts the step's contract or space, or the order."""
    step = step or {}
    contract = f"{step.get('contract') or ''}. {step.get('title') or ''}. {order}"
    refused = {name for pattern, names in CONTRADICTED if re.search(pattern, contract, re.IGNORECASE) for name in names}
    return strategy.name in refused | OF_SPACES.get(str(step.get("space") or ""), frozenset())


def plan_text(payload: dict[str, Any], situation: Situation | None = None) -> str:
    steps = payload.get("steps") or []
    lines = [
        f"{payload.get('summary', '')}{_split_floor(payload, situation)}",
        *(f"- {ids} ({space}): {title}" for ids, space, title, _ in _alike(steps, None)),
    ]
    if payload.get("more"):
        lines.append(f"- and {payload['more']} more")
    return "\n".join(lines)


def _split_floor(payload: dict[str, Any], situation: Situation | None) -> str:
    """Completes a summary that ends with the floor by the arithmetic behind it, and by the floor in the other arithmetic that the policy allows."""
    compiled = situation.plan.data if situation is not None and situation.plan is not None else None
    if situation is None or situation.capture is None or not isinstance(compiled, Compiled) or not payload.get("floor_ms"):
        return ""
    floor, shown = floor_of_task(compiled, situation.capture), duration(float(payload["floor_ms"]))
    if not floor.split_ms or floor.bound != "compute" or not str(payload.get("summary")).endswith(f"floor {shown}"):
        return ""
    return f" with each fp32 product as three of TF32, {duration(max(floor.split_ms, floor.memory_ms))} as three of fp16"


def untouched_text(attempt: Attempt) -> str:
    """Returns a sentence if a program implements no part of the plan because it has no kernel of its own, and "" otherwise."""
    report = attempt.report
    if report is None or report.own_share != 0:
        return ""
    said = "The program below carries out none of it: all of its device time is in PyTorch and its libraries."
    if NOT_CAPTURED in attempt.edit.source:
        said += (
            " It says that the model could not be captured: that held when it was written. The graph behind this plan is captured, so its groups can "
            "be carried out as planned: by `optimise`, several or all of them in one program. `re-plan` is for a plan that is wrong."
        )
    return said


def _alike(steps: Sequence[dict[str, Any]], compiled: Compiled | None) -> list[tuple[str, Any, Any, str]]:
    """Returns the ids, space, title and floor of each step, in order. Steps that differ only in their ids share one entry."""
    found: dict[tuple[Any, Any, str], list[str]] = {}
    for step in steps:
        floor = floor_of_step(compiled, step) if compiled is not None else None
        key = (step.get("space"), step.get("title"), floor.says(brief=True) if floor is not None else "")
        found.setdefault(key, []).append(str(step.get("id")))
    return [(some(ids), *key) for key, ids in found.items()]


def step_text(step: dict[str, Any] | None, compiled: Compiled | None = None) -> str:
    """Returns a step as text, with its floor if its operators show which groups it covers, and without strategies that its contract rules out."""
    if not step:
        return ""
    names = ("id", "title", "operators", "space", "strategies", "contract", "expected", "risk", "reason")
    told = {**step, "operators": _explained(step.get("operators"), compiled)}
    if isinstance(step.get("strategies"), list):
        told["strategies"] = [name for name in step["strategies"] if (known := by_name(str(name))) is None or not contradicts(known, step)]
    shown = [(name, "; ".join(map(str, told[name])) if isinstance(told.get(name), list) else str(told.get(name) or "")) for name in names]
    lines = [f"{name}: {value}" for name, value in shown if value]
    floor = step_floor(compiled, step) if compiled is not None else ""
    return "\n".join([*lines, *([floor] if floor else [])])


def _explained(operators: Any, compiled: Compiled | None) -> Any:
    """Returns a step's operators, and explains each bare group id, because a prompt with a single step does not list the groups."""
    if compiled is None or not isinstance(operators, list):
        return operators
    kinds = {group.id: ", ".join(dict.fromkeys(group.kinds[:EXPLAINED])) for group in compiled.plan.groups}
    return [f"{operator} ({kinds[operator]})" if kinds.get(operator) else operator for operator in map(str, operators)]


def groups_text(payload: dict[str, Any], compiled: Compiled, floors: bool = True, first: int | None = None) -> str:
    """Returns the groups of a plan whose program already exists, with the minimum cost of each unless `floors` is false. They do not restrict what
    may be changed. `first` is the number of the program that has these groups, if the program shown is derived from it."""
    steps = payload.get("steps") or []
    whose = "The groups of the program below."
    if first is not None:
        whose = (
            f"The groups of candidate {first}, which the compiler wrote. The program below descends from it and may compute any of them otherwise."
        )
    compared = "what lies between is not compared, only outputs and the buffers that `forward` modifies are"
    lines = [f"{whose} A change may merge or replace them: {compared}."]
    lines[0] += "" if not floors else f" Floors are of each group fused, products on {UNITS[fastest(compiled.figures, compiled.plan.precision)]}."
    for ids, space, title, floor in (alike := _alike(steps, compiled if floors else None))[:MOST_GROUPS]:
        lines.append(f"- {ids} ({space}): {title}{f': {floor}' if floor else ''}")
    if more := max(len(alike) - MOST_GROUPS, 0) + int(payload.get("more") or 0):
        lines.append(f"- and {more} more")
    return "\n".join(lines)


def program_text(source: str) -> str:
    return fenced(folded(source), "python")


def shown_program(attempt: Attempt, wanted: str = "") -> Shortened:
    """Returns a correct program in the form shown to models: a long one omits the kernels that take the least time, unless `wanted` names them."""
    times: dict[str, float] = {}
    for kernel in attempt.report.kernels if attempt.report is not None else []:
        name = base_name(kernel.name).rsplit("::", 1)[-1]
        times[name] = times.get(name, 0.0) + kernel.ms
    return shortened(folded(attempt.edit.source), times, wanted)


def shown_text(shown: Shortened, edits: bool = True) -> str:
    """Returns the program as shown to a model. `edits`: whether the reader will edit the program or only read it."""
    text = fenced(shown.text, "python")
    return f"{shown.note(edits)}\n\n{text}" if shown.bodies else text


def idea_text(idea: Idea, attempt: Attempt | None = None) -> str:
    lines = [f"{idea.title}", idea.text]
    if idea.strategies:
        lines.append(f"Strategies: {', '.join(idea.strategies)}")
    if idea.expected is not None:
        lines.append(f"Expected: {idea.expected:g}x over eager")
    if attempt is not None and attempt.report is not None:
        lines.append(f"Measured: {verdict_text(attempt.report)[:300]}")
    return "\n".join(lines)


def documents_text(passages: Sequence[Passage]) -> str:
    return "\n\n".join(f"[{p.id}] {p.title}\n{p.text.strip()}" for p in passages)
