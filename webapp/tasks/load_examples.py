"""Loads the tasks of examples/ into the first user's team."""

from __future__ import annotations

from verifier.source import SourceError
from verifier.task import Task as TaskSource
from webapp.accounts.models import User
from webapp.tasks.examples import examples
from webapp.tasks.models import Suite, Task

SLUG = "examples"


def load_examples(user: User) -> list[str]:
    """Store examples/*.py in the user's personal team. Return a sentence about each file that cannot be read. Loading again changes nothing."""
    team = user.personal_team
    assert team is not None
    known = set(Task.objects.filter(team=team).values_list("sha", flat=True))
    suite = None
    problems = []
    for example in examples():
        try:
            sha = TaskSource.read(example.source).sha
        except SourceError as error:
            problems.append(f"examples/{example.slug}.py is not a task: {error}")
            continue
        if sha not in known:
            suite = suite or Suite.objects.get_or_create(team=team, slug=SLUG, defaults={"name": "Examples", "description": "Tasks to start with"})[0]
            Task.objects.create(team=team, suite=suite, sha=sha, name=example.slug, source=example.source, created_by=user)
    return problems
