"""Idempotent creation. If a creating call is sent twice with the same `Idempotency-Key`, only one object is created, and both calls get the same
response."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.db import IntegrityError, transaction
from django.http import HttpResponse
from django.utils import timezone
from pydantic import BaseModel

from webapp.accounts.models import Team
from webapp.accounts.signed_in import Request
from webapp.api.calls.problems import CallRefused
from webapp.api.models import IdempotencyKey

HEADER = "Idempotency-Key"
KEPT_FOR = timedelta(days=1)
LONGEST = 200
HEADER_PARAMETER = {
    "name": HEADER,
    "in": "header",
    "required": False,
    "description": "Any text of up to 200 characters, such as a UUID: the same call sent again with it, within a day, answers what the first did.",
    "schema": {"type": "string", "maxLength": LONGEST},
}


def once(request: Request, team: Team, create: Callable[[], tuple[int, BaseModel]]) -> HttpResponse:
    """Return the result of `create`, (status, body), or the result that an earlier identical call received.

    The key's row is inserted first, in the same transaction as everything that `create` writes. A second, concurrent call therefore blocks on the
    unique key until the first one commits. If `create` raises an exception, nothing is stored, and the key can be used again.
    """
    key = request.headers.get(HEADER, "").strip()
    if not key:
        status, body = create()
        return _response(status, body.model_dump(mode="json"))
    if len(key) > LONGEST or not key.isprintable():
        raise CallRefused(400, f"{HEADER} has to be printable, with at most {LONGEST} characters.", "Use a UUID.")
    sent = hashlib.sha256(f"{request.method} {request.path}\n".encode() + request.body).hexdigest()
    IdempotencyKey.objects.filter(created_at__lt=timezone.now() - KEPT_FOR, user=request.user).delete()
    try:
        with transaction.atomic():
            row = IdempotencyKey.objects.create(team=team, user=request.user, key=key, request=sent)
            status, body = create()
            row.status, row.answer = status, body.model_dump(mode="json")
            row.save(update_fields=["status", "answer"])
            return _response(status, row.answer)
    except IntegrityError as error:
        if "one_answer_a_key" not in str(error):
            raise
    row = IdempotencyKey.objects.get(team=team, user=request.user, key=key)
    if row.request != sent:
        raise CallRefused(409, f"This {HEADER} was used for another request.", "Use a new key for a new request.")
    return _response(row.status, row.answer, again=True)


def _response(status: int, body: dict[str, Any], again: bool = False) -> HttpResponse:
    response = HttpResponse(json.dumps(body, cls=DjangoJSONEncoder), status=status, content_type="application/json")
    if again:
        response["Idempotent-Replayed"] = "true"
    return response
