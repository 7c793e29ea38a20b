"""Two programs with hunks of every kind between them, and a run in which both are candidates that passed."""

from __future__ import annotations

from tests.unit.webapp.people import add_verification, make_result
from verifier.source import sha256
from webapp.accounts.models import User
from webapp.runs import artefacts
from webapp.runs.models import Candidate, Run

OLD = """import torch
import torch.nn as nn

# the first version


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kept = 1
        self.one = 1
        self.two = 2

    def forward(self, x):
        for _ in range(40):
            torch.softmax(x, dim=1)
        a = x
        b = a
        c = b
        d = c.clone()
        e = d
        f = e
        g = f
        return torch.softmax(g, dim=1)
"""
# Hunk 1: a comment. Hunk 2: an attribute that hunk 5 reads. Hunk 3: the wasted work. Hunk 4: a copy. Hunk 5.
NEW = (
    OLD.replace("# the first version", "# the second version")
    .replace("        self.kept = 1\n", "        self.dimension = 1\n")
    .replace("        for _ in range(40):\n            torch.softmax(x, dim=1)\n", "")
    .replace("d = c.clone()", "d = c")
    .replace("softmax(g, dim=1)", "softmax(g, dim=self.dimension)")
)


def measured_run(user: User, old: str = OLD, new: str = NEW, **fields) -> Run:
    """Returns a run whose candidates 1 and 2 passed in the full tier."""
    run = make_result(user, **fields)
    add_verification(run, number=1, ratio=1.0)
    for number, source in ((1, old), (2, new)):
        artefacts.put(run.team_id, source.encode(), "text/x-python", "program.py")
        stored = artefacts.find(run.team_id, sha256(source))
        verification = run.verifications.filter(candidate_number=number).first()
        parent = number - 1 or None
        Candidate.objects.filter(run=run, number=number).update(sha=stored.sha, program=stored, verification=verification, parent_number=parent)
    return run
