"""Trying a profile: asked for on a page, done by an orchestrator, which has the keys."""

from __future__ import annotations

from django.utils import timezone
from procrastinate.contrib.django import app
from procrastinate.exceptions import AlreadyEnqueued
from procrastinate.job_context import JobContext

from agents.llm.check import Failure, Trial, try_profile
from webapp.database import in_thread
from webapp.llm.models import Profile
from webapp.runs.jobs import ORCHESTRATOR


@app.task(name="try_profile", queue=ORCHESTRATOR, pass_context=True)
async def try_model(context: JobContext, profile: str) -> None:
    models = context.additional_context["orchestrator"].models
    if models.known(profile):
        trial = await try_profile(models, profile)
    else:
        gone = Failure(kind="configuration", message="this orchestrator has no such profile", hint="look at its file of profiles")
        trial = Trial(profile=profile, kind="", ok=False, failure=gone)
    await in_thread(_keep)(profile, trial)


def ask_to_try(profile: str) -> None:
    """Nothing where it is being tried already."""
    Profile.objects.filter(pk=profile).update(trying_since=timezone.now())
    try:
        try_model.configure(queueing_lock=f"try:{profile}").defer(profile=profile)
    except AlreadyEnqueued:
        pass


def _keep(profile: str, trial: Trial) -> None:
    Profile.objects.filter(pk=profile).update(trial=trial.model_dump(mode="json"), tried_at=timezone.now(), trying_since=None)
