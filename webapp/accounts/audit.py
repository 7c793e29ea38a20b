"""The audit log records who did what, when and from where. Each row is written in the same transaction as the action that it records, and is never
changed."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

from django.conf import settings
from django.http import HttpRequest

from webapp.accounts.access import Asker, grant_of, user_of
from webapp.accounts.models import AuditEntry, Team

# Human-readable names of the recorded actions. Actions not listed here are shown under their internal names.
ACTIONS = {
    "sign_in": "signed in",
    "sign_in.refused": "sign-in refused",
    "sign_out": "signed out",
    "password.changed": "password changed",
    "two_factor.on": "two-factor turned on",
    "two_factor.off": "two-factor turned off",
    "two_factor.codes": "recovery codes regenerated",
    "team.created": "team created",
    "team.renamed": "team renamed",
    "member.joined": "joined",
    "member.role": "role changed",
    "member.removed": "member removed",
    "member.left": "left",
    "invitation.made": "invitation made",
    "invitation.revoked": "invitation revoked",
    "token.made": "token made",
    "token.revoked": "token revoked",
    "run.published": "run published",
    "hook.made": "webhook added",
    "hook.changed": "webhook changed",
    "hook.deleted": "webhook deleted",
    "results.opened": "published results opened to everybody",
    "results.closed": "published results closed to people without an account",
    "run.withdrawn": "run withdrawn",
    "run.archived": "run archived",
    "run.restored": "run restored",
    "budget.raised": "budget raised",
    "document.deleted": "document deleted",
    "device.enrolled": "GPU host connected",
    "share.made": "share link made",
    "share.revoked": "share link revoked",
    "verdict.given": "verdict given",
    "comment.deleted": "comment deleted",
    "training.agreed": "allowed runs to be used for training",
    "training.withdrawn": "no longer allows runs to be used for training",
}
LONGEST_TARGET = 200


def record(asker: Asker | None, team: Team | None, action: str, target: str = "", detail: dict[str, Any] | None = None) -> None:
    """Records one action. An action without a team, such as a sign-in, belongs to the person and appears in the logs of all their teams.

    `target` is a human-readable name of the object. `detail` is a small JSON object, for example with ids or with the values before and after.
    Neither may contain secrets.
    """
    user = user_of(asker) if asker is not None else None
    user = user if user is not None and user.is_authenticated else None
    grant = grant_of(asker) if asker is not None else None
    teams = [team] if team is not None else list(user.teams.all()) if user else []
    AuditEntry.objects.bulk_create(
        AuditEntry(
            team=one,
            actor=user,
            actor_name=user.get_username() if user else "",
            action=action,
            target=str(target)[:LONGEST_TARGET],
            detail=detail or {},
            address=client_address(asker) if isinstance(asker, HttpRequest) else None,
            via=f"token {grant.token.prefix}…" if grant else "browser" if isinstance(asker, HttpRequest) else "command",
        )
        for one in teams
    )


def client_address(request: HttpRequest) -> str | None:
    """Returns the client's address. Forwarding headers are trusted only if they come from a proxy in TRUSTED_PROXIES. In that case, the client is the
    last listed address that is not such a proxy."""
    address = _address(request.META.get("REMOTE_ADDR", ""))
    named = [part.strip() for part in request.META.get("HTTP_X_FORWARDED_FOR", "").split(",") if part.strip()]
    while named and address is not None and any(address in network for network in settings.TRUSTED_PROXIES):
        address = _address(named.pop())
    return str(address) if address is not None else None


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        found = ip_address(text)
    except ValueError:
        return None
    return found.ipv4_mapped or found if isinstance(found, IPv6Address) else found
