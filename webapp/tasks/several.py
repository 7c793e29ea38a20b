"""The form for choosing several tasks for one suite run: the available tasks, and the settings that they share."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.http import QueryDict

from agents.settings import Settings
from webapp.accounts.models import Team
from webapp.arena.services import MOST_RUNS, Chosen
from webapp.tasks.examples import examples
from webapp.tasks.forms import MODES, PRECISIONS
from webapp.tasks.models import Suite, Task
from webapp.tasks.search_fields import SearchFields
from webapp.ui.fields import set_choices


@dataclass(frozen=True)
class TaskChoice:
    value: str  # "task:ID" or "example:SLUG"
    label: str


@dataclass(frozen=True)
class Group:
    """Tasks that are listed together: a suite, the examples, or manually submitted tasks."""

    key: str
    label: str
    tasks: list[TaskChoice]


def groups_of(teams: Sequence[Team]) -> list[Group]:
    by_suite: dict[uuid.UUID, list[TaskChoice]] = {}
    known = {example.source for example in examples()}
    by_hand = []
    for task in Task.objects.filter(team__in=teams).order_by("name", "created_at").only("pk", "name", "suite_id", "source"):
        if task.suite_id is not None:
            by_suite.setdefault(task.suite_id, []).append(TaskChoice(f"task:{task.pk}", task.name))
        elif task.source not in known:
            by_hand.append(TaskChoice(f"task:{task.pk}", task.name))
    suites = sorted(Suite.objects.filter(pk__in=by_suite, team__in=teams).exclude(slug="examples"), key=lambda suite: _natural(suite.name))
    groups = [Group(str(suite.pk), suite.name, sorted(by_suite[suite.pk], key=lambda choice: _natural(choice.label))) for suite in suites]
    groups.append(Group("examples", "Examples", [TaskChoice(f"example:{example.slug}", example.slug.replace("_", " ")) for example in examples()]))
    if by_hand:
        groups.append(Group("none", "Submitted by hand", by_hand))
    return groups


def _natural(text: str) -> list[Any]:
    """Sort key that orders numbers in names by value, so that 2_ comes before 10_."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", text)]


class SeveralForm(SearchFields):
    name = forms.CharField(max_length=140, required=False)
    team = forms.ChoiceField(required=False)
    tasks = forms.MultipleChoiceField(error_messages={"required": "Tick at least one task."})
    device = forms.ChoiceField()
    precision = forms.ChoiceField(choices=[(name, name) for name in PRECISIONS], initial="fp32-strict")
    mode = forms.ChoiceField(choices=[(name, name) for name in MODES], initial="train")

    def __init__(
        self, data: QueryDict | None = None, *, devices: list[Any], teams: list[Any], groups: list[Group], initial: dict[str, Any] | None = None
    ):
        super().__init__(data, initial=initial, label_suffix="")
        self.offer()
        self.teams, self.groups = teams, groups
        set_choices(self, "device", [(choice.kind, choice.label) for choice in devices if choice.usable])
        set_choices(self, "team", [(str(team.pk), team.name) for team in teams])
        set_choices(self, "tasks", [(task.value, task.label) for group in groups for task in group.tasks])
        for name, field in self.fields.items():
            field.widget.attrs["aria-describedby"] = f"{self[name].id_for_label}_help"

    def clean(self) -> dict[str, Any]:
        super().clean()
        cleaned = self.cleaned_data
        if len(cleaned.get("tasks", [])) > MOST_RUNS:
            self.add_error("tasks", f"{len(cleaned['tasks'])} tasks are more than one suite run holds ({MOST_RUNS}): tick fewer.")
        if not self.errors:
            self.check(self.settings())
        return cleaned

    def settings(self) -> Settings:
        chosen = {name: self.cleaned_data[name] for name in ("device", "precision", "mode")}
        return Settings.model_validate(chosen | self.search())

    def chosen_tasks(self) -> list[tuple[str, str]]:
        """Return (title, source) pairs in page order, with each source only once."""
        wanted = set(self.cleaned_data["tasks"])
        shipped = {f"example:{example.slug}": example.source for example in examples()}
        kept = Task.objects.filter(team__in=self.teams, pk__in=[value.partition(":")[2] for value in wanted if value.startswith("task:")])
        own = {f"task:{task.pk}": task.source for task in kept}
        found: dict[str, str] = {}
        for group in self.groups:
            for task in group.tasks:
                if task.value in wanted:
                    found.setdefault((shipped | own)[task.value], task.label)
        return [(title, source) for source, title in found.items()]

    def default_name(self, tasks: list[tuple[str, str]]) -> str:
        wanted = set(self.cleaned_data["tasks"])
        for group in self.groups:
            if wanted == {task.value for task in group.tasks}:
                return f"{group.label}, {self.search()['workflow']}"
        return f"{len(tasks)} tasks, {self.search()['workflow']}" if len(tasks) > 1 else tasks[0][0]


class OnePolicy(Chosen):
    """A workflow with its settings, which apply to every task."""

    whole: Settings

    def settings(self, workflow: str, seed: int) -> Settings:
        return self.whole


def one_policy(settings: Settings) -> OnePolicy:
    chosen = OnePolicy([settings.workflow], [settings.seed], settings.coder, settings.device, settings.precision, settings.budget)
    object.__setattr__(chosen, "whole", settings)
    return chosen
