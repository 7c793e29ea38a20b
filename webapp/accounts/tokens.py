"""Personal tokens, which let a program act for a person in one team. Only a hash is stored."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q
from django.utils import timezone

from verifier.confinement.probe import waived
from webapp.accounts import alone
from webapp.accounts.models import ApiToken, Membership, Team, User

SCOPES = {
    "read": "see tasks, runs, results and reports",
    "submit": "start runs, steer them and comment",
    "verify": "have programs verified",
    "admin": "everything that you may do in the team, its members and tokens included",
}
MARK = "sw_"  # a prefix that lets scanners for leaked secrets recognise a token
PREFIX = len(MARK) + 8  # characters that remain visible
USED_EVERY = timedelta(minutes=1)  # resolution of `last_used_at`, so that a busy token does not cause a write per request


@dataclass(frozen=True)
class TokenGrant:
    """The grant of a token: the person, the team and the scopes."""

    user: User
    team: Team
    scopes: frozenset[str]
    token: ApiToken

    def allows(self, scope: str) -> bool:
        return scope in self.scopes or "admin" in self.scopes


def hashed(token: str) -> str:
    """Returns a plain hash, which is sufficient because the token has 256 random bits."""
    return hashlib.sha256(token.encode()).hexdigest()


def issue(user: User, team: Team, name: str, scopes: Iterable[str], expires_at: datetime | None = None) -> tuple[ApiToken, str]:
    """Returns a new token and its text, which can never be shown again."""
    alone.refuse("tokens")
    text = MARK + secrets.token_urlsafe(32)
    chosen = [scope for scope in SCOPES if scope in set(scopes)]
    return ApiToken.objects.create(
        user=user, team=team, name=name, scopes=chosen, prefix=text[:PREFIX], token_hash=hashed(text), expires_at=expires_at
    ), text


def authenticate(header: str, address: str | None = None) -> TokenGrant | None:
    """Returns the grant for an `Authorization` header (`Bearer sw_…`), or None unless the token is in force and its owner is still a member of the
    team."""
    scheme, _, text = header.strip().partition(" ")
    text = text.strip()
    if waived() or scheme.lower() != "bearer" or not text.startswith(MARK) or len(text) > 200:
        return None
    now = timezone.now()
    in_force = Q(expires_at=None) | Q(expires_at__gt=now)
    token = ApiToken.objects.select_related("user", "team").filter(in_force, token_hash=hashed(text), revoked_at=None, user__is_active=True).first()
    if token is None or not Membership.objects.filter(team=token.team, user=token.user).exists():
        return None
    stale = Q(last_used_at=None) | Q(last_used_at__lt=now - USED_EVERY)
    ApiToken.objects.filter(stale, pk=token.pk).update(last_used_at=now, last_used_from=address)
    return TokenGrant(token.user, token.team, frozenset(token.scopes), token)
