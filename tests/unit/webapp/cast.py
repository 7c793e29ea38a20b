"""A small cast for the tests: people with teams, and their runs."""

from __future__ import annotations

from verifier.source import sha256
from webapp.accounts.models import User
from webapp.runs.models import Run
from webapp.tasks.models import Task

SOURCE = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.rand(16, 1024)]


def get_init_inputs():
    return []
"""
PROGRAM = SOURCE.replace("class Model(", "class ModelNew(")


def make_user(name: str = "ada") -> User:
    return User.with_team(name)


def make_run(user: User, **fields) -> Run:
    task, _ = Task.objects.get_or_create(team=user.personal_team, sha=sha256(SOURCE), defaults={"name": "softmax", "source": SOURCE})
    return Run.objects.create(team=user.personal_team, task=task, title="softmax", created_by=user, **fields)
