"""The caller's identity and permissions."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

from ninja import Router, Schema
from pydantic import Field

from webapp.accounts.access import grant_of
from webapp.accounts.models import Membership
from webapp.accounts.signed_in import Request
from webapp.accounts.tokens import SCOPES
from webapp.api.calls.problems import refusals

router = Router(tags=["me"])


class Belongs(Schema):
    id: uuid.UUID
    name: str
    role: str = Field(description="owner, member or viewer.")


class TokenRow(Schema):
    prefix: str = Field(description="Its first characters, as shown on the page Account, Tokens.")
    name: str
    expires_at: datetime | None


class Me(Schema):
    user: str
    team: Belongs = Field(description="Team of what you create: the token's, or the one chosen on the pages.")
    scopes: list[str] = Field(description="read, submit, verify, admin; a session has all that its role allows.")
    token: TokenRow | None = Field(description="Null for a session.")


@router.get("", response={200: Me, **refusals(401, 422, 429)}, operation_id="me", summary="Who am I?")
def me(request: Request) -> Any:
    """Returns the person and the team for which the token acts, and its scopes."""
    grant = grant_of(request)
    team = grant.team if grant else request.team
    role = Membership.objects.get(team=team, user=request.user).role
    return {
        "user": request.user.get_username(),
        "team": {"id": team.pk, "name": team.name, "role": role},
        "scopes": [scope for scope in SCOPES if grant is None or grant.allows(scope)],
        "token": {"prefix": grant.token.prefix, "name": grant.token.name, "expires_at": grant.token.expires_at} if grant else None,
    }
