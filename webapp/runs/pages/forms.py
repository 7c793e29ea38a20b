"""The forms for steering a run: another plan, more budget, and other settings for a fork."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import QueryDict

from agents.plan_edits import MAX_STEPS, MAX_TEXT, SPACES
from agents.settings import Settings
from webapp.tasks.search_fields import MINUTES, SIMPLE, SearchFields, initial_of, limit_field


class StepForm(forms.Form):
    """One step of a plan. Fields that the form doesn't show (operators, risk) stay unchanged."""

    id = forms.CharField(max_length=60, required=False, widget=forms.HiddenInput)
    title = forms.CharField(max_length=200)
    space = forms.ChoiceField(choices=[(space, space) for space in SPACES], initial=SPACES[0])
    strategies = forms.CharField(max_length=MAX_TEXT, required=False, widget=forms.TextInput(attrs={"list": "strategies", "spellcheck": "false"}))
    contract = forms.CharField(max_length=MAX_TEXT, required=False, widget=forms.Textarea(attrs={"rows": 2}))
    reason = forms.CharField(max_length=MAX_TEXT, required=False, widget=forms.Textarea(attrs={"rows": 2}))

    def step(self) -> dict[str, Any]:
        cleaned = self.cleaned_data
        names = [name.strip() for name in cleaned["strategies"].split(",") if name.strip()]
        kept = {"id": cleaned["id"]} if cleaned["id"] else {}
        return kept | {name: cleaned[name] for name in ("title", "space", "contract", "reason")} | {"strategies": names}


StepForms = forms.formset_factory(StepForm, extra=1, can_delete=True, can_order=True, max_num=MAX_STEPS, validate_max=True)


def steps_of(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the plan's steps as initial values for the forms. The page shows `figures` next to them."""
    shown, figures = ("id", "title", "space", "contract", "reason"), ("floor_ms", "expected_ms", "bound", "expected")
    return [
        {name: step.get(name) or "" for name in shown}
        | {"strategies": ", ".join(step.get("strategies") or []), "figures": {name: step.get(name) for name in figures}}
        for step in plan.get("steps", [])
    ]


def edited_steps(forms_of_steps: Any) -> list[dict[str, Any]]:
    return [form.step() for form in forms_of_steps.ordered_forms if form.cleaned_data]


class BudgetForm(forms.Form):
    """The limits to raise. An empty field leaves its limit unchanged."""

    candidates = limit_field("candidates")
    calls = limit_field("calls")
    tokens = limit_field("tokens")
    dollars = limit_field("dollars")
    minutes = limit_field("minutes")
    verifier_minutes = limit_field("verifier_minutes")

    def __init__(self, data: QueryDict | None = None, *, settings: Settings):
        opened = initial_of(settings)
        super().__init__(data, initial={name: opened[name] for name in (*SIMPLE, *MINUTES)}, label_suffix="")
        self.present = settings.budget

    def clean(self) -> dict[str, Any]:
        """Check that at least one limit rises and none falls."""
        super().clean()
        cleaned = self.cleaned_data
        self.raised: dict[str, float] = {}
        for field in (*SIMPLE, *MINUTES):
            unit, wanted = MINUTES.get(field, field), cleaned.get(field)
            present = getattr(self.present, unit)
            if wanted is None or present is None or wanted == self.initial[field]:
                continue
            wanted = wanted * 60 if field in MINUTES else wanted
            if wanted < present:
                self.add_error(field, f"limits can only be raised; it is {self.initial[field]:g} now")
            else:
                self.raised[unit] = wanted
        if not self.errors and not self.raised:
            raise forms.ValidationError("Raise at least one limit.")
        return cleaned


class ForkForm(SearchFields):
    def __init__(self, data: QueryDict | None = None, *, settings: Settings):
        super().__init__(data, initial=initial_of(settings), label_suffix="")
        self.before = settings
        self.offer()

    def clean(self) -> dict[str, Any]:
        super().clean()
        cleaned = self.cleaned_data
        if not self.errors:
            self.check(self.settings())
        return cleaned

    def settings(self) -> Settings:
        return Settings.model_validate({**self.before.model_dump(), **self.search()})
