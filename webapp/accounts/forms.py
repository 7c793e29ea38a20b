"""Forms for team names, invitations, roles and tokens."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.utils import timezone

from webapp.accounts.models import Membership
from webapp.accounts.tokens import SCOPES

DAYS = {"1": "a day", "7": "a week", "30": "30 days"}
TOKEN_DAYS = {"30": "30 days", "90": "90 days", "365": "a year", "": "never"}
ROLES = {
    Membership.MEMBER: "starts and steers runs, comments, judges",
    Membership.VIEWER: "looks, changes nothing",
    Membership.OWNER: "all of it, and the members, tokens and what is published",
}


class TeamForm(forms.Form):
    name = forms.CharField(max_length=100)


class RoleForm(forms.Form):
    role = forms.ChoiceField(choices=Membership.ROLES)


class InvitationForm(forms.Form):
    role = forms.ChoiceField(choices=[(role, role) for role in ROLES], initial=Membership.MEMBER)
    days = forms.ChoiceField(choices=list(DAYS.items()), initial="7")
    uses = forms.ChoiceField(choices=[("1", "one person"), ("", "anyone with the link")], required=False, initial="1")
    note = forms.CharField(max_length=100, required=False)

    def given(self) -> dict[str, Any]:
        cleaned = self.cleaned_data
        uses = cleaned["uses"]
        return {"role": cleaned["role"], "days": int(cleaned["days"]), "most_uses": int(uses) if uses else None, "note": cleaned["note"]}


class TokenForm(forms.Form):
    name = forms.CharField(max_length=100)
    scopes = forms.MultipleChoiceField(choices=list(SCOPES.items()), initial=["read"], error_messages={"required": "Choose at least one scope."})
    days = forms.ChoiceField(choices=list(TOKEN_DAYS.items()), required=False, initial="90")

    def expires_at(self) -> datetime | None:
        days = self.cleaned_data["days"]
        return timezone.now() + timedelta(days=int(days)) if days else None
