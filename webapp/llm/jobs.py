"""Jobs that test a profile or resend a request. A page queues them, and an orchestrator, which has the keys, runs them."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone
from procrastinate.contrib.django import app
from procrastinate.exceptions import AlreadyEnqueued
from procrastinate.job_context import JobContext

from agents.llm.check import Failure, Trial, try_profile
from agents.llm.errors import ModelFailure
from agents.llm.messages import Delta, Reply, Request
from webapp.database import in_thread
from webapp.llm.models import ModelCall, Profile, Replay
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


@app.task(name="replay_request", queue=ORCHESTRATOR, pass_context=True)
async def replay_request(context: JobContext, replay_id: int) -> None:
    """Sends the request to the model. Does nothing if the replay has already been answered or its run no longer exists."""
    row = await in_thread(Replay.objects.filter(pk=replay_id, answered_at=None).first)()
    if row is None:
        return

    async def unheard(delta: Delta) -> None:
        pass

    models = context.additional_context["orchestrator"].models
    request = Request.model_validate(row.request)
    try:
        reply = await models.ask(row.profile, request, key=f"replay/{row.pk}", run=str(row.run_id), on_delta=unheard)
    except ModelFailure as error:
        await in_thread(_keep_replay)(row, None, ". ".join(part for part in (error.message, error.hint) if part))
    else:
        await in_thread(_keep_replay)(row, reply, "")


def ask_again(row: Replay) -> None:
    """Queues the replay in the caller's transaction."""
    replay_request.defer(replay_id=row.pk)


def _keep_replay(row: Replay, reply: Reply | None, failure: str) -> None:
    """Stores the reply and its cost, because spending includes replays."""
    row.reply = reply.model_dump(mode="json") if reply else None
    row.failure, row.answered_at = failure, timezone.now()
    usage = reply.usage if reply else None
    with transaction.atomic():
        row.save(update_fields=["reply", "failure", "answered_at"])
        ModelCall.objects.create(
            team_id=row.team_id, run_id=row.run_id, seq=-row.pk, at=row.asked_at, profile=row.profile, model=(reply.model if reply else "")[:200],
            purpose=f"replay of {row.request.get('purpose') or 'a request'}"[:80], failed=reply is None, calls=reply.attempts if reply else 1,
            input_tokens=usage.input_tokens if usage else None, output_tokens=usage.output_tokens if usage else None,
            tokens=usage.input_tokens + usage.output_tokens if usage else 0, dollars=reply.dollars if reply else None, seconds=row.seconds,
        )  # fmt: skip


def ask_to_try(profile: str) -> None:
    """Queues a test of the profile. Does nothing if one is already queued or running."""
    Profile.objects.filter(pk=profile).update(trying_since=timezone.now())
    try:
        try_model.configure(queueing_lock=f"try:{profile}").defer(profile=profile)
    except AlreadyEnqueued:
        pass


def _keep(profile: str, trial: Trial) -> None:
    Profile.objects.filter(pk=profile).update(trial=trial.model_dump(mode="json"), tried_at=timezone.now(), trying_since=None)
