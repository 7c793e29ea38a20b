"""Helpers for form fields whose choices are known only when the form is created."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.forms import BaseForm, ChoiceField


def set_choices(form: BaseForm, name: str, choices: Iterable[tuple[str, Any]]) -> None:
    field = form.fields[name]
    assert isinstance(field, ChoiceField), f"{name} has nothing to choose from"
    field.choices = list(choices)
