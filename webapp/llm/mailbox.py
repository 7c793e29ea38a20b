"""Implements `agents.llm.mailbox.MailboxStore` on Postgres. The orchestrator leaves requests here, and people answer them on the page."""

from __future__ import annotations

import uuid

from django.utils import timezone

from agents.llm.mailbox import LONGEST_REPLY, NotWaiting, Waiting
from webapp.accounts.models import User
from webapp.database import in_thread
from webapp.llm.models import Letter
from webapp.runs.models import Run


class ReplyRefused(ValueError):
    """Raised if a reply cannot be accepted. The message says what to do."""


class DatabaseMailbox:
    async def put(self, waiting: Waiting) -> None:
        await in_thread(put)(waiting)

    async def list(self, run: str | None = None) -> list[Waiting]:
        return await in_thread(_list)(run)

    async def answer(self, id: str, text: str) -> None:
        await in_thread(answer)(id, text)

    async def reply(self, id: str) -> str | None:
        return await in_thread(_reply)(id)

    async def withdraw(self, id: str) -> None:
        await in_thread(_withdraw)(id)


def put(waiting: Waiting) -> Letter:
    """Posts a request. A request that was withdrawn because its run was interrupted is reopened."""
    pk = _uuid(waiting.run)
    run = Run.objects.filter(pk=pk).first() if pk is not None else None
    defaults = {"run": run, "team": run.team if run else None, "profile": waiting.profile, "waiting": waiting.model_dump(mode="json")}
    letter, created = Letter.objects.get_or_create(name=waiting.id, defaults=defaults)
    if not created and letter.state == "withdrawn":
        Letter.objects.filter(pk=letter.pk, reply=None).update(withdrawn_at=None, asked_at=timezone.now())
    return letter


def answer(name: str, text: str, by: User | None = None) -> None:
    """Sends a reply, once. Raises `ReplyRefused` if the text is invalid, and `NotWaiting` if no request is waiting for it."""
    text = text.replace("\r\n", "\n").replace("\x00", "")
    if not text.strip():
        raise ReplyRefused("The reply is empty: paste what the model answered.")
    if len(text.encode()) > LONGEST_REPLY // 2:
        raise ReplyRefused(f"The reply is longer than {LONGEST_REPLY >> 21} MiB: paste the model's answer alone.")
    sent = Letter.objects.filter(name=name, reply=None, withdrawn_at=None).update(reply=text, replied_at=timezone.now(), replied_by=by)
    if not sent:
        raise NotWaiting(f"{name} is no longer waiting for a reply")


def _list(run: str | None) -> list[Waiting]:
    letters = Letter.objects.filter(reply=None, withdrawn_at=None).order_by("asked_at", "name")
    if run is not None:
        letters = letters.filter(run=_uuid(run))
    return [Waiting.model_validate(letter.waiting) for letter in letters]


def _reply(name: str) -> str | None:
    return Letter.objects.filter(name=name).values_list("reply", flat=True).first()


def _withdraw(name: str) -> None:
    gone = Letter.objects.filter(name=name, reply=None)
    gone.filter(run=None).delete()  # checks of the mailbox leave no rows behind
    gone.update(withdrawn_at=timezone.now())


def _uuid(text: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(text)
    except ValueError:
        return None
