"""The *Replay this request* page, which resends a run's model request to any profile, unchanged or edited, and shows both replies."""

from __future__ import annotations

import uuid
from typing import Any

from django import forms
from django.contrib.auth.decorators import login_required
from django.db import transaction
from django.db.models.fields.json import KeyTextTransform
from django.http import Http404, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_GET, require_http_methods

from agents.llm.messages import Request
from agents.payloads import LlmCompleted, LlmRequested
from webapp.accounts import signed_in
from webapp.llm.jobs import ask_again
from webapp.llm.models import ModelCall, Profile, Replay
from webapp.runs.access import run_for
from webapp.runs.models import Event, Run
from webapp.runs.trace.texts import NoSuchText, call_texts
from webapp.ui.fields import set_choices

AUTHORS = ("system", "user", "assistant")
MOST_CHARACTERS = 2_000_000  # per message
SHOWN = 10  # number of earlier replays of the same request to list


class ReplayForm(forms.Form):
    """The form with the profile and the settings. The messages are separate fields named `message.N`."""

    profile = forms.ChoiceField()
    max_tokens = forms.IntegerField(min_value=1, max_value=1_000_000, label="Tokens of the reply at most")
    temperature = forms.FloatField(min_value=0, max_value=2, required=False, help_text="Empty: the profile's.")

    def __init__(self, data: QueryDict | None = None, *, messages: list[dict[str, str]], settings: dict[str, Any], profile: str):
        names = list(Profile.objects.order_by("name").values_list("name", flat=True))
        opened = {"profile": profile if profile in names else None, "max_tokens": settings.get("max_tokens", 16_384)}
        self.profiles = [(name, name) for name in names]
        super().__init__(data, initial=opened | {"temperature": settings.get("temperature")}, label_suffix="")
        set_choices(self, "profile", self.profiles)
        self.purpose = settings.get("purpose", "")
        self.said = [one | {"text": data.get(f"message.{at}", one["text"]) if data else one["text"]} for at, one in enumerate(messages)]

    def clean(self) -> dict[str, Any]:
        super().clean()
        if not any(one["text"].strip() for one in self.said):
            raise forms.ValidationError("All messages are empty: there is nothing to ask.")
        if any(len(one["text"]) > MOST_CHARACTERS for one in self.said):
            raise forms.ValidationError(f"A message has more than {MOST_CHARACTERS:,} characters.")
        return self.cleaned_data

    def request(self) -> Request:
        messages = [{"role": one["name"], "content": one["text"].replace("\r\n", "\n")} for one in self.said if one["text"].strip()]
        kept = {name: self.cleaned_data[name] for name in ("max_tokens", "temperature") if self.cleaned_data.get(name) is not None}
        return Request.model_validate({"messages": messages, "purpose": self.purpose, **kept})


@login_required
@require_http_methods(["GET", "POST"])
def replay(request: signed_in.Request, run_id: uuid.UUID, seq: int) -> HttpResponse:
    """Shows the request of event `seq` for editing. Sending it redirects to the page of the new reply. `?of=REPLAY` fills in the text of that
    replay."""
    run, _ = run_for(request, run_id, "act")
    then = _exchange(run, seq)
    messages, settings, profile = then["messages"], then["settings"], then["profile"]
    if before := Replay.objects.filter(run=run, seq=seq, pk=_number(request.GET.get("of", ""))).first():
        messages = [{"name": one["role"], "text": one["content"]} for one in before.request["messages"]]
        settings, profile = before.request, before.profile
    form = ReplayForm(request.POST if request.method == "POST" else None, messages=messages, settings=settings, profile=profile)
    if request.method == "POST" and messages and form.is_valid():
        with transaction.atomic():
            row = Replay.objects.create(
                team=run.team, run=run, seq=seq, profile=form.cleaned_data["profile"], request=form.request().model_dump(mode="json"),
                asked_by=request.user,
            )  # fmt: skip
            ask_again(row)
        return redirect("llm:replayed", run.pk, row.pk)
    earlier = Replay.objects.filter(run=run, seq=seq).select_related("asked_by").order_by("-pk")[:SHOWN]
    context = {"run": run, "seq": seq, "form": form, "then": then, "earlier": earlier, "profiles": form.profiles}
    return render(request, "llm/replay.html", context, status=422 if form.errors else 200)


@login_required
@require_GET
def replayed(request: signed_in.Request, run_id: uuid.UUID, replay_id: int) -> HttpResponse:
    """Shows the new reply next to the original one. The page polls until the reply arrives."""
    run, may_act = run_for(request, run_id)
    row = get_object_or_404(Replay.objects.select_related("asked_by"), run=run, pk=replay_id)
    context = {"run": run, "row": row, "then": _exchange(run, row.seq), "may_act": may_act}
    if request.htmx:
        return render(request, "llm/_replayed.html", context) if row.answered_at else HttpResponse(status=204)
    return render(request, "llm/replayed.html", context)


def _exchange(run: Run, seq: int) -> dict[str, Any]:
    """Returns the exchange that begins with event `seq`: its messages, settings, reply and cost."""
    try:
        known = call_texts(run, seq)
    except NoSuchText as error:
        raise Http404(str(error)) from None
    asked = Event.objects.get(run=run, seq=seq)
    ends = Event.objects.filter(run=run, kind=LlmCompleted.kind).annotate(key=KeyTextTransform("key", "payload"))
    cost = ModelCall.objects.filter(run=run, seq__in=ends.filter(key=asked.body.effect).values("seq")).first()
    return {
        "messages": [text for text in known["texts"] if text["name"] in AUTHORS],
        "reply": next((text["text"] for text in known["texts"] if text["name"] == "reply"), ""),
        "settings": known["settings"],
        "profile": asked.said(LlmRequested).profile,
        "cost": cost,
    }


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 18 else 0
