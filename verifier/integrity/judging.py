"""The judge's half of the `integrity` stage: compares a runner's evidence with the program's source, its compiled libraries and the timed calls.

Evidence from a runner can downgrade or refuse a program but can never clear it. Own kernels count only if the source and the machine code contain
them, torch did not launch them, and the observed calls are consistent with the timed calls.
"""

from __future__ import annotations

import ast
import math
import re
from dataclasses import dataclass, field
from typing import Literal

from pydantic import ValidationError

from verifier.build.artefacts import Artefacts
from verifier.correctness.calling import Subject
from verifier.correctness.trials import Trials
from verifier.integrity.artefacts import Library, libraries
from verifier.integrity.evidence import Evidence
from verifier.integrity.launches import by_library
from verifier.integrity.sampling.observing import Sampled, key
from verifier.judge.session import give
from verifier.profiling.own_kernels import OwnKernels, classified, qualified
from verifier.report import Class, Finding, ObservedKernel, TorchCompute

CUSTOM, MIXED = 0.5, 0.1
# The minimum share of own code in the timed calls, as a fraction of its share in later calls, and the probability below which chance does not explain
# a smaller share.
IN_TIMED, DOUBT = 0.5, 0.01
# The number of sampled moments in timed calls that is enough to reveal a library's work, if later calls are nearly all own code; and the number of
# moments with own code that is enough.
LEAST_TIMED, LEAST_OWN = 8, 2
# Limits on how much longer than a timed call the observed calls of the timed process may take. On a GPU, this applies to their device work plus the
# launch overhead. On the CPU, which may be busy with other work, it applies to the faster of these calls as a whole.
FITS, FITS_MS = {"cuda": 1.1, "cpu": 1.5}, {"cuda": 0.01, "cpu": 1.0}
# On a GPU, the minimum share of a timed call that must be device work, the host's own time, or the exchange around the call.
EXPLAINED, EXCHANGE_MS = 0.9, 0.25
# The same limits if the judge cannot inspect the process. In that case, the profiler inside the process reports instead, and adds its own overhead to
# short calls.
INSIDE, INSIDE_MS = 10.0, 30.0
IDLE = 0.3  # processors
# The launch overhead on a GPU, regardless of the kernel's work. On an H200, the smallest observed kernels took 0.8 to 1.8 us, and moving their few
# numbers took only a small part of that time. A kernel that takes no longer than this shows only that it was launched.
LAUNCH_MS = 0.002
UNNAMED = 0.01  # share of a call below which time without an operator is not listed
NAMED = 6  # maximum number of operators and kernels that a sentence names
_KEY = re.compile(r"\d+:")
_C_FUNCTION = re.compile(r"\b([A-Za-z_]\w*)\s*\([^;{}]*\)\s*\{")


@dataclass
class Judged:
    """The judgement based on the evidence. If `status` is set, it ends the evaluation."""

    kernels: list[ObservedKernel] = field(default_factory=list)
    torch_compute: list[TorchCompute] = field(default_factory=list)
    own_share: float | None = None
    program_class: Class | None = None
    reason: str = ""
    findings: list[Finding] = field(default_factory=list)
    status: Literal["", "wrong_result", "inconclusive"] = ""
    message: str = ""

    def note(self, rule: str, severity: Literal["downgrade", "note"], message: str, line: int | None = None) -> None:
        self.findings.append(Finding(rule=rule, severity=severity, message=message, line=line, source="runtime"))

    def end(self, status: Literal["wrong_result", "inconclusive"], rule: str, message: str) -> None:
        self.note(rule, "downgrade", message)
        if not self.status:
            self.status, self.message = status, message


def ask(trials: Trials, subject: Subject) -> Evidence:
    """Asks the runner for evidence from calls under the profiler and from activity during and after them. The runner has exclusive use of the device,
    as in timing. Raises `PartyFailure`."""
    runner, values = subject.runner, trials.first_inputs
    message = {
        "tree": values.tree,
        "rng": 1,
        "backward": subject.caller.backward if subject.caller else None,
        **give(runner, "in", values.tensors, values.specs),
    }
    del values  # may take gigabytes
    with runner.gate.alone():
        answer = runner.ask("observe", message, trials.limits.call * 3).message
    try:
        return Evidence.model_validate(answer.get("evidence"))
    except ValidationError:
        return Evidence(failure="the runner's observation is malformed")


@dataclass
class Observed:
    """The judge's own observations of the timed process. `replay_ms` is the time of the process's further calls, or zero if there were none. `unlike`
    describes how their outputs differ from those of the timed call. `sampled` describes, on the CPU, whose code they spent their time in. `needless`
    lists own functions or kernels that do not affect the outputs, by the names that `sampled` and the recorder use. `unskipped` gives the reason if
    this could not be tested. `wrong` describes what is wrong with the outputs of calls like the timed ones. `shortcut` is the finding of
    `verifier.integrity.shortcuts`. `busy` indicates whether other work on the host took the processors in so many timed calls that this alone
    explains why the program's own code was not seen."""

    replay_ms: float = 0.0
    unlike: str = ""
    sampled: Sampled | None = None
    needless: list[str] = field(default_factory=list)
    unskipped: str = ""
    wrong: str = ""
    shortcut: str = ""
    busy: bool = False


def judge_evidence(
    evidence: Evidence, source: str, artefacts: Artefacts, kind: Literal["cpu", "cuda"], program_ms: float, seen: Observed | None = None
) -> Judged:
    """Judges the evidence. `program_ms` is the time of a timed call on the tournament's clock."""
    seen = seen or Observed()
    judged = Judged(reason=evidence.failure)
    if seen.wrong:
        judged.end("wrong_result", "later-calls", seen.wrong)
    if seen.shortcut:
        judged.end("inconclusive", "shortcut", seen.shortcut)
    if evidence.failure:
        return judged
    built = libraries(artefacts.index, artefacts.data)
    if kind == "cuda":
        defined, ran = _on_gpu(judged, evidence, source, built)
    elif seen.sampled is not None and seen.sampled.looked:
        defined, ran = _sampled(judged, evidence, source, built, seen.sampled, program_ms)
    else:
        defined, ran = _on_cpu(judged, evidence, source, built)
        if seen.sampled is not None:
            judged.note(
                "seen-inside", "note", f"the class comes from the profiler inside the process, which misses work below it: {seen.sampled.reason}"
            )
    if seen.sampled is not None:
        _unseen(judged, seen.sampled, seen.busy)
    _without_needless(judged, seen)
    _class(judged, kind, compiled=evidence.compiled > 0, unlike=seen.unlike or _unlike(judged, evidence, kind, program_ms, seen))
    _coverage(judged, defined, ran, kind)
    _needs(judged, evidence)
    _beside(judged, evidence, kind)
    return judged


def _unlike(judged: Judged, evidence: Evidence, kind: str, program_ms: float, seen: Observed) -> str:
    """Explains why the inspected calls cannot have been like the timed ones. Returns an empty string if they can have been."""
    if not program_ms:
        return ""
    if kind == "cuda":
        work = evidence.busy_ms or 0.0
        if work > program_ms * FITS[kind] + FITS_MS[kind] * (1 + sum(kernel.calls for kernel in judged.kernels)):
            return f"the observed calls do {work:.3f} ms of work on the device, a timed call takes {program_ms:.3f} ms"
        if evidence.recorded and work + evidence.host_ms < program_ms * EXPLAINED - EXCHANGE_MS:
            found = f"{work:.3f} ms of work on the device and {evidence.host_ms:.3f} ms before it"
            return f"the observed calls do {found}, a timed call takes {program_ms:.3f} ms"
        return ""
    if seen.sampled is not None and seen.sampled.looked:
        if seen.replay_ms > program_ms * FITS[kind] + FITS_MS[kind]:
            return f"repeated calls take {seen.replay_ms:.3f} ms, a timed call {program_ms:.3f} ms"
        return _unlike_timed(seen.sampled)
    work = sum(kernel.ms for kernel in judged.kernels if kernel.own)
    if work > program_ms * INSIDE + INSIDE_MS:
        return f"the observed calls do {work:.3f} ms of work, a timed call takes {program_ms:.3f} ms"
    return ""


def _unlike_timed(sampled: Sampled) -> str:
    """Describes how little of the program's own code was seen in the timed calls themselves. Returns an empty string if chance explains it."""
    timed = sampled.timed
    if timed is None or sampled.share < MIXED or at_most(timed.share * timed.moments, timed.moments) >= IN_TIMED * sampled.share:
        return ""
    return (
        f"in {timed.moments} of the timed calls, each inspected once, its own code was at work {timed.share:.0%} of the time, "
        f"in later calls {sampled.share:.0%}"
    )


def _unseen(judged: Judged, sampled: Sampled, busy: bool) -> None:
    """Judges a classification that is based only on later calls, because too little was seen of the timed calls."""
    timed = sampled.timed
    if timed is None or sampled.share < MIXED or timed.moments >= LEAST_TIMED:
        return
    if timed.share * timed.moments >= LEAST_OWN and timed.share >= IN_TIMED * sampled.share:
        return  # a library's work in these calls would have looked different
    message = f"it was seen whose code the timed calls run in {timed.moments} of them, which is too few: the class rests on later calls"
    judged.note("timed-unseen", "note", message)
    if busy and not judged.status:
        judged.status, judged.message = "inconclusive", f"this host is busy: {message}"


def at_most(found: float, looks: int, doubt: float = DOUBT) -> float:
    """Returns the largest true share that would show up in at most `found` of `looks` independent samples with a probability of at least `doubt`."""
    low, high, hits = 0.0, 1.0, math.ceil(found)
    if hits >= looks:
        return 1.0
    for _ in range(40):
        share = (low + high) / 2
        chance = sum(math.comb(looks, number) * share**number * (1 - share) ** (looks - number) for number in range(hits + 1))
        low, high = (share, high) if chance >= doubt else (low, share)
    return low


def _sampled(
    judged: Judged, evidence: Evidence, source: str, built: list[Library], sampled: Sampled, program_ms: float
) -> tuple[frozenset[str], set[str]]:
    """Computes shares from what the judge saw from outside. The profiler inside the process supplies the operator names for the library's part, and
    the number of calls of each function."""
    exports = frozenset(name for library in built for name in library.exports)
    bindings = any(name.startswith("PyInit_") for name in exports)
    told = {kernel.name: kernel for kernel in evidence.kernels if kernel.own}
    for (library, symbol), share in sampled.own.items():
        name = qualified(symbol) or symbol or "(a function without a name)"
        calls = told[name].calls if name in told else 1.0
        judged.kernels.append(ObservedKernel(name=name[:300], calls=calls, ms=share * program_ms, share=share, own=True, via=key(library, symbol)))
    judged.kernels += _by_library(evidence, sampled, program_ms)
    judged.kernels.sort(key=lambda kernel: -kernel.ms)
    judged.own_share, judged.reason = min(sampled.share, 1.0) if sampled.moments else None, sampled.reason
    _imports(judged, built)
    ran = {kernel.name for kernel in judged.kernels if kernel.own} | (set(told) & exports if not bindings else set(told))
    defined = frozenset(name for name in _c_functions(source) if name in exports)
    return (defined, ran) if not bindings else (frozenset(), ran)


def _by_library(evidence: Evidence, sampled: Sampled, program_ms: float) -> list[ObservedKernel]:
    """Breaks down the library's part of the time: by operator if the profiler inside the process saw them, and by file for the rest."""
    others, rest, wall = [kernel for kernel in evidence.kernels if not kernel.own], sum(sampled.library.values()), evidence.wall_ms or 0.0
    seen = min(sum(kernel.ms for kernel in others) / wall, rest) if wall else 0.0
    total = sum(kernel.ms for kernel in others)
    shares = [(kernel, seen * kernel.ms / total) for kernel in others if total]
    found = [kernel.model_copy(update={"ms": share * program_ms, "share": share}) for kernel, share in shares if share > 0]
    for name, share in sampled.library.items():
        left = share * (rest - seen) / rest
        if left > UNNAMED:
            found.append(ObservedKernel(name=name[:300], calls=1.0, ms=left * program_ms, share=left, own=False))
    return found


def _without_needless(judged: Judged, seen: Observed) -> None:
    """Removes own work that has no effect. It counts neither as the program's own work nor as a library's."""
    needless = [kernel for kernel in judged.kernels if kernel.own and not {kernel.via, kernel.name}.isdisjoint(seen.needless)]
    if needless and judged.own_share is not None:
        parts = [f"{kernel.name} ({kernel.share:.0%} of the time)" for kernel in needless]
        judged.note("does-nothing", "downgrade", f"the outputs are the same without these, which do not count as own work: {_listed(parts)}")
        judged.own_share = max(judged.own_share - sum(kernel.share for kernel in needless), 0.0)
    if seen.unskipped:
        judged.note("not-skipped", "note", f"whether the outputs need the program's own code was not tried: {seen.unskipped}")
    dropped = {id(kernel) for kernel in needless}
    judged.kernels = [
        kernel.model_copy(
            update={"own": kernel.own and id(kernel) not in dropped, "via": "" if kernel.own and _KEY.match(kernel.via) else kernel.via}
        )
        for kernel in judged.kernels
    ]


def _on_gpu(judged: Judged, evidence: Evidence, source: str, built: list[Library]) -> tuple[frozenset[str], set[str]]:
    own = OwnKernels.of(source, [symbol for library in built for symbol in library.kernels])
    launched_by_library = {(kernel.name, kernel.via) for kernel in evidence.kernels if by_library(kernel.via)}
    # If torch and the program each launched a kernel of the same name, there are two entries for that name.
    decided: list[ObservedKernel] = []
    for flag in (True, False):
        some = [kernel for kernel in evidence.kernels if ((kernel.name, kernel.via) in launched_by_library) is flag]
        decided += classified(some, own, [kernel.name for kernel in some] if flag else ())[0]
    shared = _beside_library(evidence, decided)
    alone = {id(kernel): max(kernel.ms - shared.get((kernel.name, kernel.via), 0.0), 0.0) for kernel in decided}
    total = sum(alone.values())
    judged.kernels = sorted(
        (kernel.model_copy(update={"share": alone[id(kernel)] / total if total else 0.0}) for kernel in decided), key=lambda kernel: -kernel.ms
    )
    judged.own_share = sum(kernel.share for kernel in judged.kernels if kernel.own) if total else None
    judged.reason = "" if total else "CUPTI saw nothing run on the device"
    return own.defined, {own.short(kernel.name) for kernel in judged.kernels if kernel.own}


def _beside_library(evidence: Evidence, decided: list[ObservedKernel]) -> dict[tuple[str, str], float]:
    """Returns, for each own kernel, the milliseconds for which a library's kernel ran at the same time. This time is the library's: a kernel that
    spins until a library's result is there runs for as long."""
    own = {(kernel.name, kernel.via) for kernel in decided if kernel.own}
    rows = [(kernel.name, kernel.via) for kernel in evidence.kernels]
    found: dict[tuple[str, str], float] = {}
    for one, other, ms in evidence.beside:
        if max(one, other) >= len(rows) or min(one, other) < 0 or ms < 0:
            continue
        for mine, theirs in ((rows[one], rows[other]), (rows[other], rows[one])):
            if mine in own and theirs not in own and not theirs[0].startswith(("Memcpy", "Memset")):
                found[mine] = found.get(mine, 0.0) + ms
    return found


def _on_cpu(judged: Judged, evidence: Evidence, source: str, built: list[Library]) -> tuple[frozenset[str], set[str]]:
    """Classifies functions on the CPU. A function counts as the program's own if a library that the builder produced exports it, or if it belongs to
    a binding module, whose functions have Python's names."""
    exports = frozenset(name for library in built for name in library.exports)
    bindings = any(name.startswith("PyInit_") for name in exports)
    wall = evidence.wall_ms or 0.0
    for kernel in evidence.kernels:
        own = kernel.own and (kernel.name in exports or bindings)
        share = min(kernel.ms / wall, 1.0) if wall else 0.0
        judged.kernels.append(kernel.model_copy(update={"own": own, "share": share}))
    judged.own_share = min(sum(kernel.share for kernel in judged.kernels if kernel.own), 1.0) if wall else None
    judged.reason = "" if wall else "the profiler gave no figure"
    if _imports(judged, built) and judged.own_share:
        judged.own_share = min(judged.own_share, CUSTOM - 0.01)  # from inside the process, a library's time cannot be distinguished from its caller's
    ran = {kernel.name for kernel in judged.kernels if kernel.own}
    defined = frozenset(name for name in _c_functions(source) if name in exports)
    return (defined, ran) if not bindings else (frozenset(), ran)


def _imports(judged: Judged, built: list[Library]) -> bool:
    foreign = sorted({name for library in built for name in library.compute_imports})
    if foreign:
        judged.note("library-import", "downgrade", f"the compiled code uses {_listed(foreign)}: the time spent there is a library's")
    return bool(foreign)


def _c_functions(source: str) -> set[str]:
    texts = [node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return {name for text in texts if 'extern "C"' in text for name in _C_FUNCTION.findall(text)}


def _class(judged: Judged, kind: str, compiled: bool, unlike: str) -> None:
    share = judged.own_share
    if share is None:
        return
    if unlike and share > 0:
        judged.note("two-faced", "downgrade", f"{unlike}: they were not the same, so none of its own work counts")
        judged.own_share = share = 0.0
    elif kind == "cuda" and share >= MIXED and (compiled or any(not k.own and k.name.startswith("triton_") for k in judged.kernels)):
        judged.own_share = share = _without_launches(judged, share)
    judged.program_class = "custom" if share >= CUSTOM else "mixed" if share >= MIXED else "orchestration"
    others = sorted((kernel for kernel in judged.kernels if not kernel.own and kernel.share >= 0.02), key=lambda kernel: -kernel.share)
    if judged.program_class != "custom" and others:
        what = "device" if kind == "cuda" else "wall"
        parts = [f"{kernel.via or kernel.name} {kernel.share:.0%}" for kernel in others]
        message = f"{share:.0%} of the {what} time is in the program's own code; the rest: {_listed(list(dict.fromkeys(parts)))}"
        judged.note("library-share", "note", message)


def _without_launches(judged: Judged, share: float) -> float:
    """Returns the program's own share of the work if torch.compile does most of it, excluding own kernels that take no longer than a launch. In a
    call of a few microseconds, kernels that contribute nothing to the outputs would otherwise classify the program as `mixed` or, if there are enough
    of them, as `custom`. The rule applies if at least half of the work that takes longer than a launch is not the program's own. If no work takes
    longer, it applies to all work. It does not apply to programs that also use a library's matrix products: in those, a fused two-microsecond kernel
    saves several launches, and a needless one saves nothing."""
    bare = [kernel for kernel in judged.kernels if kernel.own and 0 < kernel.ms <= LAUNCH_MS * kernel.calls]
    work = [kernel for kernel in judged.kernels if kernel.ms > LAUNCH_MS * kernel.calls]
    if not bare or sum(kernel.share for kernel in work if not kernel.own) < CUSTOM * sum(kernel.share for kernel in work):
        return share
    names = _listed([f"{kernel.name} {1000 * kernel.ms / kernel.calls:.1f} us" for kernel in bare])
    judged.note("bare-launch", "note", f"own kernels that take no longer than an empty one do not count as own work: {names}")
    return share - sum(kernel.share for kernel in bare)


def _coverage(judged: Judged, defined: frozenset[str], ran: set[str], kind: str) -> None:
    never = sorted(defined - ran)
    what = "kernels" if kind == "cuda" else "functions"
    if never and not ran:
        judged.note("never-launched", "downgrade", f"none of the program's own {what} ran: {_listed(never)}")
    elif never:
        judged.note("never-launched", "note", f"own {what} that did not run on the task's inputs: {_listed(never)}")


def _needs(judged: Judged, evidence: Evidence) -> None:
    """Judges two calls: one with torch compute watched, and one with it blocked."""
    shares: dict[str, float] = {}
    for kernel in judged.kernels:
        if not kernel.own:
            name = (kernel.via or kernel.name).replace("::", ".")
            shares[name] = shares.get(name, 0.0) + kernel.share
    judged.torch_compute = [need.model_copy(update={"share": shares.get(need.name)}) for need in evidence.needs]
    if evidence.needs:
        ordered = sorted(judged.torch_compute, key=lambda need: -(need.share or 0.0))
        parts = [
            need.name + (f" at line {need.line}" if need.line else "") + (f" ({need.share:.0%})" if need.share is not None else "")
            for need in ordered
        ]
        judged.note("torch-compute", "note", f"needs torch compute: {_listed(parts)}", ordered[0].line)
    if evidence.swallowed:
        error = evidence.swallowed[0]
        message = f"{error.error} is raised at line {error.line} in every call, and caught"
        if evidence.needs:
            judged.note(
                "falls-back", "downgrade", f"{message}; what runs instead is torch: {_listed([need.name for need in evidence.needs])}", error.line
            )
        else:
            judged.note("swallowed", "note", message, error.line)
    if evidence.blocked == "returned":
        judged.note(
            "falls-back",
            "downgrade",
            "with torch compute blocked, the program takes another path instead of failing: it has a separate path for observers",
        )
    if evidence.compiled:
        judged.note("compiler", "downgrade", f"torch.compile made {evidence.compiled} graphs: their kernels are a compiler's, not the program's")


def _beside(judged: Judged, evidence: Evidence, kind: str) -> None:
    """Finds work that is done outside forward."""
    if evidence.unjoined_ms > 0:
        message = (
            f"{evidence.unjoined_ms:.3f} ms of work on another stream were still running when forward's outputs were handed over: "
            "the caller's stream must wait for it"
        )
        judged.end("wrong_result", "unjoined", message)
    if evidence.late_ms > 0:
        judged.end("wrong_result", "late-work", f"{evidence.late_ms:.3f} ms of device work a call were started after forward had returned")
    if evidence.changed_late:
        judged.end("wrong_result", "late-work", "an output still changed after forward had returned")
    if evidence.idle_cpu > IDLE:
        judged.end("inconclusive", "background", f"the program keeps {evidence.idle_cpu:.1f} processors busy between its calls")
    if evidence.threads_left > 0:
        judged.note("threads", "note", f"{evidence.threads_left} threads of the program were still alive after forward had returned")
    if evidence.settings:
        changed = [f"{name} = {value}" for name, value in sorted(evidence.settings.items())]
        judged.note("settings", "note", f"the program changes torch's settings: {_listed(changed)}")
    if evidence.foreign:
        judged.note("foreign-library", "downgrade", f"loads libraries that were not built from its source: {_listed(evidence.foreign)}")


def _listed(parts: list[str]) -> str:
    shown = [part[:120] for part in parts[:NAMED]]
    return ", ".join(shown) + (f" and {len(parts) - NAMED} more" if len(parts) > NAMED else "")
