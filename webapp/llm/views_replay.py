"""*Replay this request*: what a run asked a model, sent again as it was or edited, to any profile, beside what was answered then."""

from __future__ import annotations

import uuid
from typing import Any

from django import forms
from django.contrib.auth.decorators import login_required
from django.db import transaction
from django.db.models.fields.json import KeyTextTransform
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_GET, require_http_methods

from agents.llm.messages import Request
from agents.payloads import LlmCompleted
from webapp.llm.jobs import ask_again
from webapp.llm.models import ModelCall, Profile, Replay
from webapp.runs.access import run_for
from webapp.runs.models import Event, Run
from webapp.runs.trace.texts import NoSuchText, call_texts

AUTHORS = ("system", "user", "assistant")
MOST_CHARACTERS = 2_000_000  # of one message
SHOWN = 10  # earlier replays of the same request


class ReplayForm(forms.Form):
    """The profile and the settings; the messages are fields of their own, `message.N`."""

    profile = forms.ChoiceField()
    max_tokens = forms.IntegerField(min_value=1, max_value=1_000_000, label="Tokens of the reply at most")
    temperature = forms.FloatField(min_value=0, max_value=2, required=False, help_text="Empty: the profile's.")

    def __init__(self, data=None, *, messages: list[dict[str, str]], settings: dict[str, Any], profile: str):
        names = list(Profile.objects.order_by("name").values_list("name", flat=True))
        opened = {"profile": profile if profile in names else None, "max_tokens": settings.get("max_tokens", 16_384)}
        super().__init__(data, initial=opened | {"temperature": settings.get("temperature")}, label_suffix="")
        self.fields["profile"].choices = [(name, name) for name in names]
        self.purpose = settings.get("purpose", "")
        self.said = [one | {"text": data.get(f"message.{at}", one["text"]) if data else one["text"]} for at, one in enumerate(messages)]

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        if not any(one["text"].strip() for one in self.said):
            raise forms.ValidationError("All messages are empty: there is nothing to ask.")
        if any(len(one["text"]) > MOST_CHARACTERS for one in self.said):
            raise forms.ValidationError(f"A message has more than {MOST_CHARACTERS:,} characters.")
        return cleaned

    def request(self) -> Request:
        messages = [{"role": one["name"], "content": one["text"].replace("\r\n", "\n")} for one in self.said if one["text"].strip()]
        kept = {name: self.cleaned_data[name] for name in ("max_tokens", "temperature") if self.cleaned_data.get(name) is not None}
        return Request.model_validate({"messages": messages, "purpose": self.purpose, **kept})


@login_required
@require_http_methods(["GET", "POST"])
def replay(request: HttpRequest, run_id: uuid.UUID, seq: int) -> HttpResponse:
    """The request of event `seq` to edit; sending it leads to the page of the reply. `?of=REPLAY` opens with a replay's own text."""
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
    context = {"run": run, "seq": seq, "form": form, "then": then, "earlier": earlier, "profiles": form.fields["profile"].choices}
    return render(request, "llm/replay.html", context, status=422 if form.errors else 200)


@login_required
@require_GET
def replayed(request: HttpRequest, run_id: uuid.UUID, replay_id: int) -> HttpResponse:
    """What was answered now beside what was answered then; asks for itself until there is an answer."""
    run, may_act = run_for(request, run_id)
    row = get_object_or_404(Replay.objects.select_related("asked_by"), run=run, pk=replay_id)
    context = {"run": run, "row": row, "then": _exchange(run, row.seq), "may_act": may_act}
    if request.htmx:
        return render(request, "llm/_replayed.html", context) if row.answered_at else HttpResponse(status=204)
    return render(request, "llm/replayed.html", context)


def _exchange(run: Run, seq: int) -> dict[str, Any]:
    """The exchange that event `seq` begins: its messages, settings and reply, and what it cost."""
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
        "profile": asked.body.profile,
        "cost": cost,
    }


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 18 else 0
