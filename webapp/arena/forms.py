"""The form that starts an arena."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django import forms

from agents.arena.cli import seeds_from
from agents.arguments import Unusable
from agents.choices.workflows import SEARCHES
from agents.settings import Budget
from webapp.arena.services import MOST_RUNS, Chosen
from webapp.llm.models import Profile
from webapp.tasks.examples import examples
from webapp.tasks.forms import PRECISIONS
from webapp.tasks.models import Suite, Task
from webapp.tasks.search_fields import limit_field
from webapp.ui.fields import set_choices
from webapp.ui.figures import counted

MOST_TASKS = 60  # maximum number of a team's tasks that are listed individually


@dataclass(frozen=True)
class Offer:
    """An option with a checkbox."""

    value: str
    label: str
    help: str = ""


class ArenaForm(forms.Form):
    """`tasks` holds the selected options: "suite:ID", "example:SLUG", "task:ID"."""

    name = forms.CharField(max_length=140, required=False)
    team = forms.ChoiceField(required=False)
    tasks = forms.MultipleChoiceField(error_messages={"required": "Tick at least one task or suite."})
    workflows = forms.MultipleChoiceField(
        choices=[(name, name) for name in SEARCHES], initial=list(SEARCHES), error_messages={"required": "Tick at least one workflow."}
    )
    llm = forms.ChoiceField(initial="built-in")
    seeds = forms.CharField(initial="1-3", max_length=40)
    device = forms.ChoiceField()
    precision = forms.ChoiceField(choices=[(name, name) for name in PRECISIONS], initial="fp32-strict")
    calls = limit_field("calls", initial=12, most=1000)  # limit per run, because an arena has many runs
    candidates = limit_field("candidates", initial=12, most=200, required=True)
    dollars = limit_field("dollars", most=10_000)
    verifier_minutes = limit_field("verifier_minutes", required=True)

    def __init__(self, data: Any = None, *, devices: list[Any], teams: list[Any], initial: dict[str, Any] | None = None):
        super().__init__(data, initial=initial, label_suffix="")
        self.suites = [
            Offer(f"suite:{suite.pk}", suite.name, counted(suite.tasks.count(), "task"))
            for suite in Suite.objects.filter(team__in=teams).order_by("name")
        ]
        self.examples = [Offer(f"example:{found.slug}", found.slug.replace("_", " ")) for found in examples()]
        own = Task.objects.filter(team__in=teams, suite=None).order_by("-created_at")[:MOST_TASKS]
        shipped = {found.source for found in examples()}
        self.own = [Offer(f"task:{task.pk}", task.name) for task in own if task.source not in shipped]
        set_choices(self, "tasks", [(offer.value, offer.label) for offer in (*self.suites, *self.examples, *self.own)])
        set_choices(self, "device", [(choice.kind, choice.label) for choice in devices if choice.usable])
        set_choices(self, "team", [(str(team.pk), team.name) for team in teams])
        set_choices(
            self,
            "llm",
            [
                ("built-in", "built-in compiler"),
                *((p.name, f"{p.name} ({p.model or p.kind})") for p in Profile.objects.all()),
            ],
        )
        self.teams = teams
        for name, field in self.fields.items():
            field.widget.attrs["aria-describedby"] = f"{self[name].id_for_label}_help"

    def clean_seeds(self) -> list[int]:
        try:
            return seeds_from(self.cleaned_data["seeds"])
        except Unusable:
            raise forms.ValidationError("Give numbers and ranges, such as 1-5 or 1,4.") from None

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if not self.errors:
            count = len(self.chosen_tasks()) * len(cleaned["workflows"]) * len(cleaned["seeds"])
            if count > MOST_RUNS:
                self.add_error(None, f"{count} runs are more than an arena holds ({MOST_RUNS}): take fewer tasks, workflows or seeds.")
        return cleaned

    def chosen_tasks(self) -> list[tuple[str, str]]:
        """Returns (title, source) pairs in page order, each source once."""
        found: dict[str, str] = {}
        known = {example.slug: example for example in examples()}
        for value in self.cleaned_data["tasks"]:
            kind, _, which = value.partition(":")
            if kind == "example":
                found.setdefault(known[which].source, which.replace("_", " "))
            else:
                where = {"suite_id": which} if kind == "suite" else {"pk": which}
                for task in Task.objects.filter(team__in=self.teams, **where).order_by("name"):
                    found.setdefault(task.source, task.name)
        return [(title, source) for source, title in found.items()]

    def chosen(self) -> Chosen:
        cleaned = self.cleaned_data
        # There is no wall-clock limit, because many runs on one device spend most of their time waiting, and the waiting time differs between runs.
        budget = Budget(
            calls=cleaned["calls"] if cleaned["llm"] != "built-in" else None, candidates=cleaned["candidates"], dollars=cleaned["dollars"],
            verifier_seconds=cleaned["verifier_minutes"] * 60, seconds=None,
        )  # fmt: skip
        return Chosen(cleaned["workflows"], cleaned["seeds"], cleaned["llm"], cleaned["device"], cleaned["precision"], budget)
