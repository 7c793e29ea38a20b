"""Trials of a program without building or timing it, for tests whose outcome is decided before anything is measured. On the CPU the parties are
forked
(forked.py), unless a test requests confined ones."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from forked import ForkingPool, Nursery, forked_device

from tests.verifier_data import prepared
from verifier.build.artefacts import NONE
from verifier.correctness.calling import Subject
from verifier.correctness.trials import Trials, Verdict
from verifier.devices.opening import open_device
from verifier.jobs import AdmitJob
from verifier.judge.pool import Pool
from verifier.judge.session import ReferenceSession
from verifier.limits import GIB, Limits
from verifier.report import Trial

# A busy host must not cause the trials to skip steps, so they are allowed ten times the usual time.
LIMITS = Limits(load=30, inputs=20, call=20, correctness=200, admission=200, memory=3 * GIB)


@dataclass
class Outcome:
    verdict: Verdict
    trials: list[Trial]
    flags: list[str]
    stage: Trials

    @property
    def wrong(self) -> str:
        return self.verdict.wrong

    def __getitem__(self, name: str) -> Trial:
        return next(trial for trial in self.trials if trial.name.endswith(name))


class Semantics:
    def __init__(self, folder: Path, device: str = "cpu", limits: Limits = LIMITS, nursery: Nursery | None = None):
        self.device = open_device(device, prepared(folder) if device == "cpu" else folder)
        self.pool = Pool(self.device, limits, spares=2) if nursery is None else ForkingPool(self.device, limits, nursery)
        if nursery is not None:
            forked_device(self.device)

    def judge(self, program: str, task: str, precision="fp32-strict", mode="train", full=False, backward=False, seed=7) -> Outcome:
        session = ReferenceSession(self.pool, task, precision, mode)
        runner = None
        try:
            trials = Trials(session, seed, full=full, on_progress=lambda text: None, backward=backward, program=program)
            trials.prepare()
            runner = self.pool.take("runner", precision, mode)
            runner.import_program(program, NONE, self.pool.limits.load)
            verdict = trials.run(Subject(runner))
            return Outcome(verdict, trials.done, verdict.flags, trials)
        finally:
            session.close()
            if runner is not None:
                self.pool.give_back(runner)

    def same(self, task: str, **options) -> Outcome:
        """Returns the task's own model as the program."""
        return self.judge(task.replace("class Model(", "class ModelNew("), task, **options)

    def changed(self, task: str, old: str, new: str, **options) -> Outcome:
        assert old in task
        return self.judge(task.replace("class Model(", "class ModelNew(").replace(old, new), task, **options)

    def admit(self, task: str, **options):
        from verifier.judge.admission import admit

        return admit(AdmitJob(task_source=task, **options), self.pool, 11)

    def close(self) -> None:
        self.pool.close()
        self.device.close()


def task(forward: str, inputs: str = "torch.rand(64, 256)", init: str = "", extra: str = "") -> str:
    """Returns a task in KernelBench's format. `forward` is the body of forward, unindented, and `init` is that of the constructor. The arguments are
    x, y, z."""
    body = "\n".join("        " + line for line in forward.splitlines())
    start = "\n".join("        " + line for line in init.splitlines())
    names = ", ".join("xyz"[: inputs.count(";") + 1])
    listed = ", ".join(part.strip() for part in inputs.split(";"))
    return (
        "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\nclass Model(nn.Module):\n"
        f"    def __init__(self):\n        super().__init__()\n{start}\n\n    def forward(self, {names}):\n{body}\n\n\n"
        f"def get_inputs():\n    return [{listed}]\n\n\ndef get_init_inputs():\n    return []\n{extra}"
    )
