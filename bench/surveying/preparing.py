"""Prepares everything that needs no device, in worker processes: a task's graph, its plan, its programs, and their kernels compiled in batches."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from agents.arena.axes import Space, space
from bench.surveying.batches import batches, compile_batch, digest, request_of
from bench.surveying.suite import Subject
from compiler import CompilerPlan, DeviceFigures, make_plan
from verifier.build.raw import RawRequest

WANTED = 220  # maximum number of distinct programs per task
MOST = 4096  # maximum number of points per task
BATCH = 16  # number of programs per compiler run


@dataclass
class Prepared:
    subject: Subject
    space: Space
    plan: CompilerPlan
    bytes_min: int | None
    flops: int | None
    requests: dict[int, RawRequest]  # for the programs that have generated kernels
    batches: list[list[int]]

    @cached_property
    def libraries(self) -> list[str]:
        """Returns the file of each batch. It is named by its content, so a later compiler version does not pick up files of an earlier one."""
        return [f"{self.subject.name}-{digest({number: self.requests[number] for number in batch})}.so" for batch in self.batches]

    @cached_property
    def library_names(self) -> dict[int, str]:
        """Returns the file that holds a program's kernels."""
        return {number: name for name, batch in zip(self.libraries, self.batches, strict=True) for number in batch}

    def alone(self, number: int) -> str:
        """Returns the file of a program that was compiled separately."""
        return f"{self.subject.name}-one-{digest({number: self.requests[number]})}.so"


def prepare(subject: Subject, figures: DeviceFigures, wanted: int = WANTED, most: int = MOST) -> Prepared:
    """Prepares a task. Its own code (constructor, inputs, export) runs on the CPU, so use this only for our own tasks. Raises `ValueError` if the
    task has no graph."""
    import torch

    from verifier.parties.capturing.capture import capture

    torch.set_num_threads(1)
    torch.manual_seed(0)
    module: dict = {"__name__": "task"}
    exec(compile(subject.source, f"{subject.name}.py", "exec"), module)
    found = capture(module["Model"](*module["get_init_inputs"]()), module["get_inputs"](), subject.source, "train")
    if found.graph is None:
        raise ValueError(f"{subject.name} cannot be captured: {found.reason}")
    plan = make_plan(found, subject.source, figures)
    chosen = space(plan, subject.source, wanted, most)
    requests = {number: request for number, program in enumerate(chosen.sources) if (request := request_of(program)) is not None}
    alike: dict[tuple[str, ...], list[int]] = defaultdict(list)  # programs that are compiled together with the same flags
    for number in sorted(requests):
        alike[requests[number].flags].append(number)
    parts = [batch for numbers in alike.values() for batch in batches(numbers, BATCH)]
    return Prepared(subject, chosen, plan, found.bytes_min, found.flops, requests, parts)


def compile_one(prepared: Prepared, at: int, compiler: str, arch: str, folder: Path) -> None:
    """Compiles batch number `at` into the folder. If a batch does not compile, it is split, so that only broken programs are missing."""
    batch = prepared.batches[at]
    library = folder / prepared.libraries[at]
    try:
        compile_batch({number: prepared.requests[number] for number in batch}, compiler, arch, library)
    except RuntimeError:
        for number in batch:
            alone = folder / prepared.alone(number)
            try:
                compile_batch({number: prepared.requests[number]}, compiler, arch, alone)
            except RuntimeError as error:
                alone.with_suffix(".txt").write_text(str(error))
